"""Frames as a real Apache Pulsar 4.0.6 and its clients sent them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GOLDEN_FRAMES = Path(__file__).parents[3] / "golden" / "pulsar" / "frames.jsonl"


@pytest.fixture(scope="session")
def golden_frames() -> list[bytes]:
    """Whole frames, their total size in front: a command begins at byte 8, its type is byte 9."""
    lines = GOLDEN_FRAMES.read_text().splitlines()
    return [bytes.fromhex(json.loads(line)["frame"]) for line in lines]
