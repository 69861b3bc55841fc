"""Proves that instances which read each other's lanes come to the same state, in whatever order
the lanes reach them, and that no increment is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_functions.errors import StateDamaged
from geminga_functions.state.changes import Changes
from geminga_functions.state.table import COUNT, StateTable

LANES = "012"
KEYS = "ab"


class Writer:
    """A lane's writer: its table, and its records that the others have not read yet."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.table = StateTable()
        self._records: dict[str, bytes] = {}

    def change(self, what: str, key: str, number: int) -> None:
        changes = Changes(self.table)
        match what:
            case "put":
                changes.put(key, b"%d" % number)
            case "increment":
                changes.increment(key, number)
            case "delete":
                changes.delete(key)
            case _:
                pass
        for record_key, record in self.table.records_of(self.lane, changes).items():
            self.table.apply(self.lane, record_key, record)
            self._records[record_key] = record

    def take(self) -> dict[str, bytes]:
        records, self._records = self._records, {}
        return records


def exchange(writers: dict[str, Writer]) -> dict[str, dict[str, bytes]]:
    """Every table takes in what the others have changed, which is returned."""
    taken = {lane: writer.take() for lane, writer in writers.items()}
    for lane, records in taken.items():
        for other, writer in writers.items():
            if other != lane:
                for key, record in records.items():
                    writer.table.apply(lane, key, record)
    return taken


changes = st.lists(
    st.tuples(
        st.sampled_from(LANES),
        st.sampled_from(["put", "increment", "delete", "exchange"]),
        st.sampled_from(KEYS),
        st.integers(-5, 5),
    ),
    max_size=40,
)


@given(changes)
def test_all_come_to_the_same_state(steps: list[tuple[str, str, str, int]]) -> None:
    writers = {lane: Writer(lane) for lane in LANES}
    for lane, what, key, number in steps:
        if what == "exchange":
            exchange(writers)
        else:
            writers[lane].change(what, key, number)
    exchange(writers)
    tables = [writer.table for writer in writers.values()]
    for key in KEYS:
        assert len({table.get(key) for table in tables}) == 1
        assert len({table.version(key) for table in tables}) == 1
        assert len({table.counter(key) for table in tables}) == 1


@given(st.lists(st.tuples(st.sampled_from(LANES), st.integers(-9, 9), st.booleans()), max_size=40))
def test_no_increment_is_lost(steps: list[tuple[str, int, bool]]) -> None:
    writers = {lane: Writer(lane) for lane in LANES}
    for lane, amount, is_exchanged in steps:
        writers[lane].change("increment", "a", amount)
        if is_exchanged:
            exchange(writers)
    exchange(writers)
    total = sum(amount for _, amount, _ in steps)
    assert [writer.table.counter("a") for writer in writers.values()] == [total] * 3


@given(changes)
def test_compaction_of_the_lanes_changes_nothing(steps: list[tuple[str, str, str, int]]) -> None:
    """A new reader gets of each lane the newest record of each key, and the lanes one by one."""
    writers = {lane: Writer(lane) for lane in LANES}
    kept: dict[str, dict[str, bytes]] = {lane: {} for lane in LANES}
    for lane, what, key, number in steps:
        writers[lane].change(what, key, number)
        for each, records in exchange(writers).items():
            kept[each] |= records
    reader = StateTable()
    for lane in reversed(LANES):
        for key, record in kept[lane].items():
            reader.apply(lane, key, record)
    for key in KEYS:
        assert reader.get(key) == writers["0"].table.get(key)
        assert reader.counter(key) == writers["0"].table.counter(key)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        ("v:a", b""),
        ("v:a", b"\xc1"),
        ("v:a", b"\x93\x02\x01\xc0"),
        ("c:a", b"\x93\x01\x01\xc0"),
        ("n:", b"\x92\x01\xc0"),
        ("x:a", b"\x93\x01\x01\x01"),
    ],
)
def test_what_is_no_record_is_refused(key: str, record: bytes) -> None:
    with pytest.raises(StateDamaged):
        StateTable().apply("1", key, record)


def test_a_lane_that_has_lost_keys_is_found_out() -> None:
    table, entries = StateTable(), list[dict[str, bytes]]()
    for key in ("a", "b", "a"):
        changes = Changes(table)
        changes.put(key, b"1")
        changes.increment("sum", 1)
        records = table.records_of("0", changes)
        entries.append(table.counted("0", records))
        for record_key, record in records.items():
            table.apply("0", record_key, record)
        assert table.counted("0", records) == entries[-1]  # applied before, or not
        assert list(entries[-1])[-1] == COUNT
    for first, is_whole in ((0, True), (1, True), (2, False)):
        # The first entry may go: the third has its keys again. The second one's may not.
        reader = StateTable()
        for entry in entries[first:]:
            for key, record in entry.items():
                reader.apply("0", key, record)
        if is_whole:
            reader.check("0")
        else:
            with pytest.raises(StateDamaged, match="it has 2 of 3 keys"):
                reader.check("0")
    reader.check("another")
