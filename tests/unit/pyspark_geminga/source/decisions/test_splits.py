"""Splits: read one after the other they are the log, exactly once and in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import LOG_START, LogPosition
from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.log_layout import Ledger, LogLayout, total_entries
from pyspark_geminga.source.decisions.admission import ByteBacklog, water_fill
from pyspark_geminga.source.decisions.splits import RecordCuts, SplitRules, parts_of, plan_cuts

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


@given(
    layouts(),
    st.data(),
    st.builds(SplitRules, st.integers(1, 900), st.integers(1, 8), st.just(100), st.integers(1, 6)),
)
def test_no_split_has_more_records_than_the_rules_say(
    layout: LogLayout, data: st.DataObject, rules: SplitRules
) -> None:
    every = stored(layout, LOG_START, layout.end)
    start = data.draw(st.sampled_from([LOG_START, *every]))
    sizes = st.lists(st.integers(0, 8), min_size=len(every), max_size=len(every))
    records = dict(zip(every, data.draw(sizes), strict=True))
    by_records = record_cuts(
        rules, [(records[entry], entry) for entry in stored(layout, start, layout.end)]
    )
    # Where the ledgers are not known, these cuts are all that there are.
    for segments in (layout.between(start, layout.end), ()):
        cuts = plan_cuts({"t": segments}, rules, {"t": by_records}).get("t", ())
        parts = [stored(layout, *part) for part in parts_of(start, layout.end, cuts)]
        assert [entry for part in parts for entry in part] == stored(layout, start, layout.end)
        assert set(by_records) <= set(cuts)
        for part in parts:
            counts = [records[entry] for entry in part if records[entry]]
            assert sum(counts) <= (rules.records_max or 0) or len(counts) == 1
        if segments:
            assert all(parts)
            assert len(parts) >= min(rules.splits_min, total_entries(segments))


def record_cuts(rules: SplitRules, counted: Sequence[tuple[int, LogPosition]]) -> list[LogPosition]:
    cutting = RecordCuts(rules)
    for records, (ledger_id, entry_id, _) in counted:
        cutting.add(records, LogPosition(ledger_id, entry_id + 1))
    return cutting.cuts


def test_parts_are_filled_up_to_their_records_and_what_has_none_stays_with_what_is_before_it() -> (
    None
):
    rows = [2, 1, 0, 7, 0, 0, 3, 1, 2]
    counted = [(count, LogPosition(1, number)) for number, count in enumerate(rows)]
    cuts = record_cuts(SplitRules(MIB, records_max=3), counted)
    assert [cut.entry_id for cut in cuts] == [3, 6, 7]


def test_pieces_between_record_cuts_are_split_until_there_are_as_many_as_wanted() -> None:
    log = LogLayout((Ledger(1, 100, 100), Ledger(2, 20, 20)), LogPosition(2, 20))
    segments = log.between(LOG_START, log.end)
    by_records = {"t": [LogPosition(1, 60), LogPosition(1, 100)]}
    rules = SplitRules(MIB, splits_min=5, records_max=60)
    entries = [tuple(cut[:2]) for cut in plan_cuts({"t": segments}, rules, by_records)["t"]]
    assert entries == [(1, 30), (1, 60), (1, 80), (1, 100)]


def test_more_splits_than_there_may_be_are_refused_one_range_or_many() -> None:
    rules = SplitRules(MIB, splits_max=3, records_max=1)
    entries = [(1, LogPosition(1, number)) for number in range(4)]
    with pytest.raises(InvalidOption, match="makes more than maxPartitions=3 splits"):
        record_cuts(rules, entries)
    three = record_cuts(rules, entries[:3])
    assert len(plan_cuts({"a": ()}, rules, {"a": three})["a"]) == 2
    with pytest.raises(InvalidOption, match="maxRecordsPerPartition"):
        plan_cuts({"a": (), "b": ()}, rules, {"a": three})
    # Topics are not cut, and always read.
    assert plan_cuts(dict.fromkeys("abcd", ()), rules, {"a": []}) == {}


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
