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

# Keys, records and the position of what one commit has stored.
Entry = list[tuple[str, bytes, tuple[int, int]]]


class Writer:
    """A lane's writer: its table, and its entries that the others have not read yet."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.table = StateTable(lane)
        self._entries = 0

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
        self.table.staged |= self.table.records_of(self.lane, changes)

    def store(self) -> Entry:
        """What was changed since this was called last is in the lane from now on."""
        records = dict(self.table.staged)
        if not records:
            return []
        entry, position = self.table.entry_of(self.lane, records), (7, self._entries)
        self.table.keep(entry, position)
        assert not self.table.staged
        self._entries += 1
        return [(key, record, position) for key, record in entry.stored.items()]


def read(table: StateTable, lane: str, entry: Entry) -> None:
    table.take(lane, entry)
    table.check(lane)


def exchange(writers: dict[str, Writer]) -> dict[str, Entry]:
    """Every table takes in what the others have changed, which is returned."""
    stored = {lane: writer.store() for lane, writer in writers.items()}
    for lane, entry in stored.items():
        for other, writer in writers.items():
            if other != lane:
                read(writer.table, lane, entry)
    return stored


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
def test_all_instances_come_to_the_same_state(steps: list[tuple[str, str, str, int]]) -> None:
    writers = {lane: Writer(lane) for lane in LANES}
    for lane, what, key, number in steps:
        if what == "exchange":
            exchange(writers)
        else:
            writers[lane].change(what, key, number)
    exchange(writers)
    tables = [writer.table for writer in writers.values()]
    for key in KEYS:
        assert len({table.value(key) for table in tables}) == 1
        assert len({table.sum_of(key) for table in tables}) == 1


@given(st.lists(st.tuples(st.sampled_from(LANES), st.integers(-9, 9), st.booleans()), max_size=40))
def test_no_increment_is_lost(steps: list[tuple[str, int, bool]]) -> None:
    writers = {lane: Writer(lane) for lane in LANES}
    for lane, amount, is_exchanged in steps:
        writers[lane].change("increment", "a", amount)
        if is_exchanged:
            exchange(writers)
    exchange(writers)
    total = sum(amount for _, amount, _ in steps)
    assert [writer.table.sum_of("a") or 0 for writer in writers.values()] == [total] * 3


def test_a_counter_of_0_is_there_until_it_is_removed() -> None:
    writers = {lane: Writer(lane) for lane in LANES}
    for what, number, value in (
        ("increment", 5, 5),
        ("increment", -5, 0),
        ("delete", 0, None),
        ("increment", 0, 0),
    ):
        writers["1"].change(what, "a", number)
        exchange(writers)
        assert {writer.table.sum_of("a") for writer in writers.values()} == {value}


@given(changes)
def test_compaction_of_the_lanes_changes_nothing(steps: list[tuple[str, str, str, int]]) -> None:
    """A new reader gets of each lane the newest record of each key, and the lanes one by one."""
    writers = {lane: Writer(lane) for lane in LANES}
    kept: dict[str, dict[str, tuple[bytes, tuple[int, int]]]] = {lane: {} for lane in LANES}
    for lane, what, key, number in steps:
        writers[lane].change(what, key, number)
        for each, entry in exchange(writers).items():
            for record_key, record, position in entry:
                kept[each].pop(record_key, None)  # it stands where it was stored last
                kept[each][record_key] = record, position
    reader = StateTable("3")
    for lane in reversed(LANES):
        read(reader, lane, [(each, *found) for each, found in kept[lane].items()])
    for key in KEYS:
        assert reader.get(key) == writers["0"].table.get(key)
        assert reader.sum_of(key) == writers["0"].table.sum_of(key)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        ("v:a", b""),
        ("v:a", b"\xc1"),
        ("v:a", b"\x93\x02\x01\xc0"),
        ("c:a", b"\x93\x01\x01\xa0"),
        ("n:", b"\x92\x01\x01"),
        ("n:", b"\x93\x01\x01\xc0"),
        ("x:a", b"\x93\x01\x01\x01"),
    ],
)
def test_a_message_that_is_no_record_is_refused(key: str, record: bytes) -> None:
    with pytest.raises(StateDamaged):
        StateTable("0").take("1", [(key, record, (7, 0))])


def entries_of(*keys: str) -> list[Entry]:
    """Commits that each put one of the keys, and count."""
    writer, entries = Writer("0"), list[Entry]()
    for number, key in enumerate(keys):
        writer.change("put", key, number)
        writer.change("increment", "sum", 1)
        entries.append(writer.store())
        assert entries[-1][-1][0] == COUNT
    return entries


def test_a_lane_that_has_lost_keys_is_found_out() -> None:
    entries = entries_of("a", "b", "a")
    for first, is_whole in ((0, True), (1, True), (2, False)):
        # The first entry may go: the third has its keys again. The second one's may not.
        reader = StateTable("1")
        for entry in entries[first:]:
            reader.take("0", entry)
        if is_whole:
            reader.check("0")
        else:
            with pytest.raises(StateDamaged, match="it has 2 of 3 keys"):
                reader.check("0")
    reader.check("another")


def test_a_lane_that_has_lost_a_change_of_a_key_that_stays_is_found_out() -> None:
    entries = entries_of("a", "b", "a", "b")
    reader = StateTable("1")
    for entry in (entries[0], entries[1], entries[3]):
        reader.take("0", entry)
    with pytest.raises(StateDamaged, match="its 3 keys do not have the values"):
        reader.check("0")


def test_a_lane_is_not_compared_with_its_count_in_the_midst_of_an_entry() -> None:
    first, second = entries_of("a", "b")
    reader = StateTable("1")
    read(reader, "0", first)
    reader.take("0", second[:1])
    reader.check("0", is_at_end=False)
    with pytest.raises(StateDamaged):
        reader.check("0")
    # A reader that begins anew begins with the entry that was read whole.
    assert reader.begin("0") == first[0][2]
    read(reader, "0", first + second)
    assert reader.sum_of("sum") == 2


def test_a_copy_of_an_older_lane_is_found_out() -> None:
    old = StateTable("1")
    for entry in entries_of("a", "b"):
        read(old, "0", entry)
    assert old.begin("0") is not None
    with pytest.raises(StateDamaged):
        old.check("0")  # nothing was read: the lane is empty by now
    old.begin("0")
    old.take("0", entries_of("c")[0])
    with pytest.raises(StateDamaged):
        old.check("0")
    old.forget("0")
    read(old, "0", entries_of("c")[0])
    assert (old.get("a"), old.get("c"), old.sum_of("sum")) == (None, b"0", 1)


def test_a_key_that_changes_again_while_it_is_stored_stays_staged() -> None:
    writer = Writer("0")
    writer.change("put", "a", 1)
    writer.change("put", "b", 1)
    first = writer.table.entry_of("0", dict(writer.table.staged))
    writer.change("put", "a", 2)
    writer.table.keep(first, (7, 0))
    assert writer.table.staged.keys() == {"v:a"}
    assert writer.table.get("a") == b"2"
    second = writer.store()
    reader = StateTable("1")
    read(reader, "0", [(key, record, (7, 0)) for key, record in first.stored.items()])
    read(reader, "0", second)
    assert (reader.get("a"), reader.get("b")) == (b"2", b"1")
