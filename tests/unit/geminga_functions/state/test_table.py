"""Proves that instances which read each other's lanes come to the same state, in whatever order
the lanes reach them, and that no increment is lost."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_functions.errors import StateDamaged
from geminga_functions.state.table import StateTable

LANES = "012"
KEYS = "ab"


def exchange(tables: dict[str, StateTable]) -> None:
    """Every table takes in what the others have changed."""
    for lane, table in tables.items():
        records = table.take_changes()
        for other, its_table in tables.items():
            if other != lane:
                for key, record in records:
                    its_table.apply(lane, key, record)


def change(table: StateTable, what: str, key: str, number: int) -> None:
    match what:
        case "put":
            table.put(key, b"%d" % number)
        case "increment":
            table.increment(key, number)
        case "delete":
            table.delete(key)
        case _:
            pass


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
    tables = {lane: StateTable(lane) for lane in LANES}
    for lane, what, key, number in steps:
        if what == "exchange":
            exchange(tables)
        else:
            change(tables[lane], what, key, number)
    exchange(tables)
    for key in KEYS:
        assert len({table.get(key) for table in tables.values()}) == 1
        assert len({table.version(key) for table in tables.values()}) == 1
        assert len({table.counter(key) for table in tables.values()}) == 1


@given(st.lists(st.tuples(st.sampled_from(LANES), st.integers(-9, 9), st.booleans()), max_size=40))
def test_no_increment_is_lost(steps: list[tuple[str, int, bool]]) -> None:
    tables = {lane: StateTable(lane) for lane in LANES}
    for lane, amount, is_exchanged in steps:
        tables[lane].increment("a", amount)
        if is_exchanged:
            exchange(tables)
    exchange(tables)
    total = sum(amount for _, amount, _ in steps)
    assert [table.counter("a") for table in tables.values()] == [total] * 3


@given(changes)
def test_compaction_of_the_lanes_changes_nothing(steps: list[tuple[str, str, str, int]]) -> None:
    """A new reader gets of each lane the newest record of each key, and the lanes one by one."""
    tables = {lane: StateTable(lane) for lane in LANES}
    kept: dict[str, deque[tuple[str, bytes]]] = {lane: deque() for lane in LANES}

    def share() -> None:
        for lane, table in tables.items():
            records = table.take_changes()
            kept[lane].extend(records)
            for other, its_table in tables.items():
                if other != lane:
                    for key, record in records:
                        its_table.apply(lane, key, record)

    for lane, what, key, number in steps:
        change(tables[lane], what, key, number)
        share()
    reader = StateTable("new")
    for lane in reversed(LANES):
        for key, record in dict(kept[lane]).items():
            reader.apply(lane, key, record)
    for key in KEYS:
        assert reader.get(key) == tables["0"].get(key)
        assert reader.counter(key) == tables["0"].counter(key)


def test_what_was_taken_is_not_taken_again() -> None:
    table = StateTable("0")
    table.put("a", b"1")
    table.put("a", b"2")
    assert [key for key, _ in table.take_changes()] == ["v:a"]
    assert table.take_changes() == []


@pytest.mark.parametrize(
    ("key", "record"),
    [
        ("v:a", b""),
        ("v:a", b"\xc1"),
        ("v:a", b"\x93\x02\x01\xc0"),
        ("c:a", b"\x93\x01\x01\xc0"),
        ("x:a", b"\x93\x01\x01\x01"),
    ],
)
def test_what_is_no_record_is_refused(key: str, record: bytes) -> None:
    with pytest.raises(StateDamaged):
        StateTable("0").apply("1", key, record)
