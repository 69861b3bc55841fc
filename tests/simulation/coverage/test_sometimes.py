"""Proves that the stories come to what is rare, and together to every error branch that stories can
come to: without it they would prove nothing of it."""

from __future__ import annotations

import pytest
from tests.simulation.coverage.branches import Survey, survey
from tests.simulation.coverage.overflows import OVERFLOWS
from tests.simulation.coverage.rarely_entered import RARELY
from tests.simulation.coverage.sometimes import RARE_EVENTS
from tests.simulation.coverage.unreachable import reason

# Of each story, about a thousand together: as many as what is rare in it needs.
SEEDS = {
    "autorecovery": 70,
    "autorecovery: losses": 20,
    "bookies": 40,
    "careless clients": 30,
    "client": 1,
    "client storms": 10,
    "cluster": 100,
    "compaction": 50,
    "corruption": 100,
    "corruption: denials": 10,
    "damage": 50,
    "decommission": 40,
    "delayed": 40,
    "features": 60,
    "functions workers": 15,
    "garbage": 50,
    "ledgers": 100,
    "ledgers over V3": 30,
    "ledgers: fences": 20,
    "ledgers: losses": 10,
    "ledgers: power cuts": 20,
    "logs": 80,
    "many brokers": 40,
    "messaging": 70,
    "operators": 40,
    "policies": 30,
    "proxy": 10,
    "reading": 40,
    "replication": 40,
    "schemas": 30,
    "tailing": 40,
    "takeover": 100,
}
# `make test` has not run these, nor has the round of other seeds in `make test-full`.
FIRST = 5_000

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def found() -> Survey:
    """What each story comes to."""
    found = survey({name: range(FIRST, FIRST + count) for name, count in SEEDS.items()}, jobs=2)
    assert not found.failed
    return found


@pytest.mark.parametrize("name", RARE_EVENTS)
def test_a_story_comes_to_all_that_is_rare(name: str, found: Survey) -> None:
    events = [": ".join(event) for event in RARE_EVENTS[name]]
    assert not [event for event in events if event not in found.events[name]]


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_is_bounded_in_a_story_is_full_sometimes(name: str, found: Survey) -> None:
    events = [each.value for each in OVERFLOWS[name]]
    assert not [event for event in events if event not in found.events[name]]


def test_seeds_come_to_every_error_branch(found: Survey) -> None:
    missed = [each for each in found.never_entered() if reason(each) is None]
    demanded = [each for each in missed if str(each) not in RARELY]
    assert not [f"{each} at {found.places[each]}" for each in demanded]


def test_no_story_comes_to_what_is_said_to_be_unreachable(found: Survey) -> None:
    assert not {str(each): reason(each) for each in found.seeds if reason(each) is not None}
