"""Limits: filled evenly, never in the way of an entry larger than they are, in entries' order."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from geminga import LogPosition
from pyspark_geminga.log_layout import Segment
from pyspark_geminga.source.decisions.admission import (
    Backlog,
    ByteBacklog,
    CountedEntry,
    RowBacklog,
    water_fill,
)

START = LogPosition(1, 0)


class Log:
    """A log by the rows of its entries; counts the entries that were read."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = rows
        self.seen = 0
        self.backlog = RowBacklog(self._look(), START, LogPosition(1, len(rows)))

    def _look(self) -> Generator[CountedEntry]:
        for number, rows in enumerate(self.rows, 1):
            self.seen = number
            yield CountedEntry(rows, LogPosition(1, number))

    @property
    def entries(self) -> int:
        return self.backlog.position.entry_id

    @property
    def taken(self) -> int:
        return sum(self.rows[: self.entries])


def fill(limit: int, **logs: Sequence[int]) -> dict[str, Log]:
    made = {name: Log(rows) for name, rows in logs.items()}
    water_fill({name: log.backlog for name, log in made.items()}, limit)
    return made


def test_topics_get_the_same_and_what_one_leaves_goes_to_the_others() -> None:
    logs = fill(100, small=[1] * 10, large=[1] * 1000, other=[1] * 1000, idle=[])
    assert {name: log.taken for name, log in logs.items()} == {
        "small": 10,
        "large": 45,
        "other": 45,
        "idle": 0,
    }


def test_a_limit_does_not_block_an_entry_that_is_larger() -> None:
    logs = fill(10, a=[1000, 1, 1], b=[1, 1])
    assert (logs["a"].entries, logs["b"].entries) == (1, 1)


def test_every_topic_with_a_backlog_advances_however_many_there_are() -> None:
    logs = fill(3, **{f"topic{number}": [1, 1] for number in range(20)})
    assert all(log.entries == 1 for log in logs.values())


def test_a_limit_is_kept_to_the_row_where_entries_allow_it() -> None:
    assert fill(10, a=[1] * 50)["a"].taken == 10
    logs = fill(10, a=[1] * 50, b=[1] * 50, c=[1] * 50)
    assert sum(log.taken for log in logs.values()) == 10


def test_entries_without_rows_count_for_nothing() -> None:
    # Markers, chunks of a message before the last: entries without rows.
    log = fill(5, a=[0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1])["a"]
    assert log.taken == 5


def test_a_log_of_markers_alone_is_passed_at_once() -> None:
    assert fill(2, a=[0] * 30)["a"].entries == 30


def test_no_entry_behind_the_limit_is_looked_at() -> None:
    log = fill(10, a=[1] * 1000)["a"]
    assert log.seen == 10
    assert fill(10, a=[4] * 1000)["a"].seen == 3  # the third does not fit, which has to be seen


def test_limits_and_backlogs_may_exceed_32_bits() -> None:
    segments = [Segment(ledger, 0, 2**33, 2**43) for ledger in (1, 2)]
    backlog = ByteBacklog(segments, START)
    water_fill({"a": backlog}, 2**43 + 2**30)
    assert backlog.position == LogPosition(2, 2**20)
    assert fill(2**40, a=[2**35] * 40)["a"].entries == 32


def test_bytes_are_counted_by_the_mean_of_their_ledger() -> None:
    backlog = ByteBacklog([Segment(1, 5, 10, 1000), Segment(2, 0, 10, 100)], START)
    water_fill({"a": backlog}, 1055)
    assert backlog.position == LogPosition(2, 5)
    assert not backlog.is_exhausted


def test_a_limit_of_bytes_below_one_entry_takes_one() -> None:
    backlog = ByteBacklog([Segment(1, 0, 2, 2000)], START)
    water_fill({"a": backlog}, 1)
    assert backlog.position == LogPosition(1, 1)


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=30), min_size=1, max_size=6),
    st.integers(1, 200),
)
def test_whatever_the_logs_are(rows: list[list[int]], limit: int) -> None:
    logs = [Log(each) for each in rows]
    backlogs: dict[str, Backlog] = {str(number): log.backlog for number, log in enumerate(logs)}
    water_fill(backlogs, limit)
    firsts = sum(next((n for n in log.rows[: log.entries] if n), 0) for log in logs)
    total = sum(log.taken for log in logs)
    # Only first entries, without which a topic would stand still, go beyond the limit.
    assert total <= max(limit, firsts)
    assert all(log.entries >= 1 for log in logs if log.rows)
    # Nothing is left behind that had room, but for entries larger than what is left.
    for log in logs:
        if total < limit and log.entries < len(log.rows):
            assert log.rows[log.entries] > limit - total


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=6),
    st.integers(1, 2000),
)
def test_no_topic_gets_more_than_another_that_wanted_it(sizes: list[int], limit: int) -> None:
    logs = [Log([1] * size) for size in sizes]
    water_fill({str(number): log.backlog for number, log in enumerate(logs)}, limit)
    level = max(log.taken for log in logs)
    assert sum(log.taken for log in logs) == max(min(limit, sum(sizes)), len(sizes))
    for log in logs:
        # What no level divides goes to those that come first.
        assert log.taken == len(log.rows) or log.taken >= level - len(sizes)
