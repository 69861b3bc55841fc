"""What lies between positions of a log, and whether what begins somewhere is still there."""

from __future__ import annotations

import pytest

from geminga import LOG_START, LogPosition
from pyspark_geminga.log_layout import Ledger, LogLayout, Segment, total_bytes, total_entries

LOG = LogLayout((Ledger(4, 10, 1000), Ledger(6, 5, 50), Ledger(9, 2, 20)), LogPosition(9, 2))


def test_between_two_positions_are_the_entries_of_each_ledger() -> None:
    found = LOG.between(LogPosition(4, 7), LogPosition(9, 1))
    assert found == (Segment(4, 7, 3, 300), Segment(6, 0, 5, 50), Segment(9, 0, 1, 10))
    assert total_entries(found) == 9
    assert total_bytes(found) == 360


def test_the_whole_log_lies_behind_its_start() -> None:
    assert total_entries(LOG.between(LOG_START, LOG.end)) == 17


def test_an_entry_that_is_read_in_part_counts() -> None:
    assert LOG.between(LogPosition(6, 1, 3), LogPosition(6, 2, 2)) == (Segment(6, 1, 2, 20),)


def test_there_is_nothing_between_equal_positions_and_behind_the_end() -> None:
    assert LOG.between(LogPosition(6, 2), LogPosition(6, 2)) == ()
    assert LOG.between(LOG.end, LOG.end) == ()
    assert LOG.between(LogPosition(6, 5), LogPosition(9, 0)) == ()


@pytest.mark.parametrize(
    ("position", "settled"),
    [
        (LogPosition(4, 10), LogPosition(6, 0)),
        (LogPosition(4, 11), LogPosition(6, 0)),
        (LogPosition(4, 9), LogPosition(4, 9)),
        (LogPosition(9, 2), LogPosition(9, 2)),  # it is still written to
        (LogPosition(3, 7), LogPosition(3, 7)),
    ],
)
def test_a_position_behind_a_closed_ledger_is_the_start_of_the_next(
    position: LogPosition, settled: LogPosition
) -> None:
    assert LOG.settled(position) == settled


def test_empty_ledgers_are_passed() -> None:
    log = LogLayout((Ledger(1, 3, 3), Ledger(2, 0, 0), Ledger(5, 0, 0)), LogPosition(1, 3))
    assert log.settled(LogPosition(1, 3)) == LogPosition(5, 0)
    assert LogLayout(log.ledgers[1:], LogPosition(1, 3)).first == LogPosition(5, 0)


@pytest.mark.parametrize(
    ("start", "is_lost"),
    [
        (LOG_START, False),  # from wherever the log begins
        (LogPosition(4, 0), False),
        (LogPosition(5, 3), False),  # a ledger between others that is gone had no entries
        (LogPosition(6, 5), False),
        (LogPosition(9, 2), False),  # the end
        (LogPosition(3, 0), True),  # trimmed
        (LogPosition(10, 0), True),  # of a topic that was deleted and created again
    ],
)
def test_what_begins_before_the_first_entry_or_behind_the_last_ledger_is_lost(
    start: LogPosition,
    is_lost: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert LOG.is_lost(start) is is_lost


def test_an_empty_log_has_lost_nothing_of_its_own_ledger() -> None:
    log = LogLayout((Ledger(8, 0, 0),), LogPosition(8, 0))
    assert not log.is_lost(LogPosition(8, 0))
    assert log.is_lost(LogPosition(7, 3))


BEFORE = LogLayout((Ledger(4, 10, 1000),), LogPosition(4, 10), entries_added=10)


@pytest.mark.parametrize(
    ("position", "now", "settled"),
    [
        # Read to its end, closed and deleted; three entries were added, and are here.
        (
            LogPosition(4, 10),
            LogLayout((Ledger(6, 3, 3),), LogPosition(6, 3), 13),
            LogPosition(6, 0),
        ),
        # One more was added, and went with the ledger.
        (
            LogPosition(4, 10),
            LogLayout((Ledger(6, 3, 3),), LogPosition(6, 3), 14),
            LogPosition(4, 10),
        ),
        # Not read to its end.
        (
            LogPosition(4, 9),
            LogLayout((Ledger(6, 3, 3),), LogPosition(6, 3), 13),
            LogPosition(4, 9),
        ),
        # Another broker has the log, and counts from the start.
        (
            LogPosition(4, 10),
            LogLayout((Ledger(6, 3, 3),), LogPosition(6, 3), 3),
            LogPosition(4, 10),
        ),
    ],
)
def test_counts_say_whether_a_ledger_that_is_gone_had_more(
    position: LogPosition, now: LogLayout, settled: LogPosition
) -> None:
    assert now.settled_since(BEFORE, position) == settled
