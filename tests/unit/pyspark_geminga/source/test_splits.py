"""Splits: read one after the other they are the log, exactly once and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga import LOG_START, LogPosition
from pyspark_geminga.log_layout import Ledger, LogLayout, total_entries
from pyspark_geminga.source.admission import ByteBacklog, water_fill
from pyspark_geminga.source.splits import SplitRules, parts_of, plan_cuts

MIB = 1024 * 1024


@st.composite
def layouts(draw: st.DrawFn) -> LogLayout:
    """Logs of ledgers with holes between their ids; some have no entries."""
    ledgers: list[Ledger] = []
    ledger_id = 0
    for _ in range(draw(st.integers(1, 5))):
        ledger_id += draw(st.integers(1, 3))
        entries = draw(st.integers(0, 12))
        ledgers.append(Ledger(ledger_id, entries, entries and draw(st.integers(entries, 900))))
    return LogLayout(tuple(ledgers), LogPosition(ledgers[-1].ledger_id, ledgers[-1].entries))


def stored(layout: LogLayout, start: LogPosition, end: LogPosition) -> list[LogPosition]:
    """The plain truth: which entries lie in a half-open range."""
    every = [
        LogPosition(ledger.ledger_id, entry_id)
        for ledger in layout.ledgers
        for entry_id in range(ledger.entries)
    ]
    return [each for each in every if start <= each < end]


@given(layouts(), st.integers(1, 500), st.integers(1, 8), st.integers(1, 12))
def test_splits_one_after_the_other_are_the_log_exactly_once(
    layout: LogLayout, target_bytes: int, splits_min: int, splits_max: int
) -> None:
    segments = layout.between(LOG_START, layout.end)
    rules = SplitRules(target_bytes, splits_min, splits_max)
    cuts = plan_cuts({"t": segments}, rules).get("t", ())
    parts = parts_of(LOG_START, layout.end, cuts)
    read = [entry for start, end in parts for entry in stored(layout, start, end)]
    assert read == stored(layout, LOG_START, layout.end)
    assert len(parts) <= splits_max
    if segments:
        assert all(stored(layout, start, end) for start, end in parts)
        assert len(parts) >= min(splits_min, splits_max, total_entries(segments))


@given(layouts(), st.integers(1, 300), st.integers(1, 200), st.integers(1, 4))
def test_limited_batches_in_splits_are_the_log_exactly_once(
    layout: LogLayout, limit: int, target_bytes: int, splits_min: int
) -> None:
    start, read = LOG_START, list[LogPosition]()
    for _ in range(100):
        segments = layout.between(start, layout.end)
        if not segments:
            break
        backlog = ByteBacklog(segments, start)
        water_fill({"t": backlog}, limit)
        end = layout.settled(backlog.position)
        ranges = {"t": layout.between(start, end)}
        cuts = plan_cuts(ranges, SplitRules(target_bytes, splits_min)).get("t", ())
        for first, behind in parts_of(start, end, cuts):
            read += stored(layout, first, behind)
        start = end
    assert read == stored(layout, LOG_START, layout.end)


def test_the_largest_range_is_split_first() -> None:
    ranges = {
        "large": LogLayout((Ledger(1, 100, 300 * MIB),), LogPosition(1, 100)),
        "small": LogLayout((Ledger(2, 100, 20 * MIB),), LogPosition(2, 100)),
    }
    segments = {name: log.between(LOG_START, log.end) for name, log in ranges.items()}
    cuts = plan_cuts(segments, SplitRules(128 * MIB))
    assert cuts == {"large": (LogPosition(1, 33), LogPosition(1, 66))}
    cuts = plan_cuts(segments, SplitRules(128 * MIB, splits_min=5))
    assert {name: len(found) for name, found in cuts.items()} == {"large": 3}
    assert plan_cuts(segments, SplitRules(1, splits_max=2)) == {}


def test_a_limited_batch_still_becomes_as_many_splits_as_are_wanted() -> None:
    log = LogLayout((Ledger(1, 1000, 1000 * MIB),), LogPosition(1, 1000))
    backlog = ByteBacklog(log.between(LOG_START, log.end), LOG_START)
    water_fill({"t": backlog}, 10 * MIB)
    limited = {"t": log.between(LOG_START, backlog.position)}
    cuts = plan_cuts(limited, SplitRules(128 * MIB, splits_min=4))["t"]
    assert cuts == (LogPosition(1, 2), LogPosition(1, 5), LogPosition(1, 7))


def test_parts_that_others_cut_are_the_range_all_the_same() -> None:
    # Cuts come out of a checkpoint, and the range may begin later than when they were written.
    cuts = (LogPosition(1, 2), LogPosition(1, 5))
    assert parts_of(LogPosition(1, 3), LogPosition(1, 5), cuts) == [
        (LogPosition(1, 3), LogPosition(1, 5))
    ]
    assert parts_of(LogPosition(1, 5), LogPosition(1, 5), cuts) == []
