"""Proves that the stories come to what is rare: without it they would prove nothing of it."""

from __future__ import annotations

import pytest
from tests.simulation.sometimes import RARE_EVENTS, EventCounter
from tests.simulation.stories import story

from geminga_scenarios.verdicts import results

# `make test` has not run these, nor has the round of other seeds in `make test-full`.
SEEDS = range(5_000, 5_100)

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("name", RARE_EVENTS)
def test_a_hundred_seeds_come_to_all_that_is_rare(name: str) -> None:
    with EventCounter() as seen:
        list(results(story(name), SEEDS))
    missed = [": ".join(event) for event in RARE_EVENTS[name] if not seen[event]]
    assert not missed, f"{name} never came to {missed}"
