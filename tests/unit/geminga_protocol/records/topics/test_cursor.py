"""What a subscription acknowledged comes back exactly: holes, parts of batches, properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.encodings.bit_sets import bits_of_words
from geminga_protocol.records.managed_ledgers_pb2 import ManagedCursorInfo
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord, cursor_path

HOLES = bytes.fromhex(
    "08ffffffffffffffffff0110051802220c0a0408051004120408051006220c0a0408051008120408051009"
    "220c0a040805100e12040805100f30f8cbe7e09f34"
)
BATCHES = bytes.fromhex(
    "08ffffffffffffffffff01100b18ffffffffffffffffff0130f2cbe7e09f34"
    "3a090a04080b100010b6033a090a04080b100110db053a090a04080b100210ed06"
)

int64s = st.integers(-(2**63), 2**63 - 1)
positions = st.tuples(int64s, int64s)
ranges = st.lists(st.tuples(positions, positions), max_size=5).map(tuple)
words = st.lists(int64s, max_size=3).map(tuple)


def test_a_recorded_snapshot_has_the_entries_that_were_acknowledged() -> None:
    """The session acknowledged 0, 1, 2, 5, 6, 9 and 15 of ledger 5."""
    cursor = CursorRecord.decode(HOLES)
    assert cursor.cursor_ledger_id == -1
    assert cursor.mark_delete == (5, 2)
    acknowledged = [
        entry_id
        for (_, lower), (_, upper) in cursor.acknowledged
        for entry_id in range(lower + 1, upper + 1)
    ]
    assert acknowledged == [5, 6, 9, 15]
    assert cursor.last_active_ms == 1795230918136


def test_a_recorded_snapshot_has_the_messages_of_batches_that_are_left() -> None:
    """The session acknowledged every third of thirty messages in three batches of ten."""
    cursor = CursorRecord.decode(BATCHES)
    left = [
        entry_id * 10 + index
        for (_, entry_id), deleted in cursor.partial_batches.items()
        for index in range(10)
        if bits_of_words(deleted) >> index & 1
    ]
    assert left == [number for number in range(30) if number % 3]


@given(
    ranges,
    st.dictionaries(st.text(), int64s, max_size=3),
    st.dictionaries(positions, words, max_size=3),
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.none() | positions,
)
def test_a_cursor_comes_back(
    acknowledged: tuple[tuple[tuple[int, int], tuple[int, int]], ...],
    properties: dict[str, int],
    partial_batches: dict[tuple[int, int], tuple[int, ...]],
    cursor_properties: dict[str, str],
    mark_delete: tuple[int, int] | None,
) -> None:
    record = CursorRecord(
        cursor_ledger_id=9,
        mark_delete=mark_delete,
        acknowledged=acknowledged,
        properties=properties,
        last_active_ms=5,
        partial_batches=partial_batches,
        cursor_properties=cursor_properties,
    )
    assert CursorRecord.decode(record.encode()) == record


@given(positions, ranges, st.dictionaries(int64s, words, max_size=3))
def test_a_position_comes_back(
    mark_delete: tuple[int, int],
    acknowledged: tuple[tuple[tuple[int, int], tuple[int, int]], ...],
    acknowledged_bits: dict[int, tuple[int, ...]],
) -> None:
    record = PositionRecord(
        mark_delete=mark_delete,
        acknowledged=acknowledged,
        properties={"#pulsar.internal.x": 7},
        partial_batches={(1, 2): (3,)},
        acknowledged_bits=acknowledged_bits,
    )
    assert PositionRecord.decode(record.encode()) == record


def test_a_mark_delete_position_in_half_is_none() -> None:
    value = ManagedCursorInfo(cursorsLedgerId=9, markDeleteLedgerId=5).SerializeToString()
    assert CursorRecord.decode(value).mark_delete is None


def test_a_cursor_stands_below_its_topic() -> None:
    path = cursor_path("t/ns/persistent/orders", "billing")
    assert path == "/managed-ledgers/t/ns/persistent/orders/billing"
