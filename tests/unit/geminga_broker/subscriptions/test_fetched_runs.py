"""Proves that what was read from bookies is found again as long as it is among the newest runs."""

from __future__ import annotations

from geminga_broker.log.positions import Entry, Position
from geminga_broker.subscriptions.fetched_runs import FetchedRuns


def run_of(first: int, count: int) -> list[Entry]:
    return [(entry_id, b"%d" % entry_id, 1) for entry_id in range(first, first + count)]


def test_a_run_is_found_from_any_of_its_entries_on() -> None:
    fetched = FetchedRuns(2)
    fetched.keep(1, run_of(10, 5))
    fetched.keep(2, run_of(10, 3))
    assert fetched.run(Position(1, 12), 2) == run_of(12, 2)
    assert fetched.run(Position(1, 13), 9) == run_of(13, 2)
    assert fetched.run(Position(2, 10), 9) == run_of(10, 3)
    for missing in ((1, 9), (1, 15), (2, 13), (3, 10)):
        assert fetched.run(Position(*missing), 9) == []


def test_the_oldest_run_makes_room() -> None:
    fetched = FetchedRuns(2)
    for first in (0, 10, 20):
        fetched.keep(1, run_of(first, 5))
    assert len(fetched) == 10
    assert fetched.run(Position(1, 0), 1) == []
    assert fetched.run(Position(1, 10), 1) == run_of(10, 1)


def test_whether_anything_was_needed_is_known() -> None:
    fetched = FetchedRuns(1)
    fetched.keep(1, run_of(0, 5))
    fetched.is_in_use = False
    assert not fetched.run(Position(1, 7), 1)
    assert not fetched.is_in_use
    assert fetched.run(Position(1, 3), 1)
    assert fetched.is_in_use


def test_nothing_is_left_after_clearing() -> None:
    fetched = FetchedRuns(3)
    fetched.keep(1, run_of(0, 5))
    fetched.clear()
    assert len(fetched) == 0
    assert fetched.run(Position(1, 0), 1) == []
