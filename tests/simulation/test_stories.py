"""Proves that a story told again from the same seed is the same one, to the last byte."""

from __future__ import annotations

import pytest
from tests.simulation.stories import STORIES, story

SEED = 3
# The parts of stories, named behind a colon, stand on what the whole ones stand on. A seed of the
# client's story takes as long as those of ten others; its storms have the same clients. The story
# of replication repeats a seed that its other tests tell anyway.
LEFT_OUT = {"client", "replication"}
REPEATED = [name for name in STORIES if ":" not in name and name not in LEFT_OUT]


@pytest.mark.parametrize("name", REPEATED)
def test_a_seed_repeats(name: str) -> None:
    run = story(name)
    assert run(SEED) == run(SEED)
