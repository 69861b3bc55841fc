"""Frames as a real Apache Pulsar 4.0.6 and its clients sent them."""

from __future__ import annotations

import json

import pytest
from tests.project_files import GOLDEN

FRAMES = GOLDEN / "pulsar" / "frames.jsonl"


@pytest.fixture(scope="session")
def golden_frames() -> list[bytes]:
    """Whole frames, their total size in front: a command begins at byte 8, its type is byte 9."""
    lines = FRAMES.read_text().splitlines()
    return [bytes.fromhex(json.loads(line)["frame"]) for line in lines]
