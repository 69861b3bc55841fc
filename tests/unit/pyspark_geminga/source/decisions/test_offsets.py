"""Offsets in checkpoints: their exact JSON, of this release and of the Java connector."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import LogPosition, MessageId
from pyspark_geminga.errors import InvalidOffset
from pyspark_geminga.source.decisions.offsets import Place, SourceOffset, parse_positions

ORDERS = "persistent://public/default/orders"
BILLS = "persistent://public/default/bills-partition-3"

positions = st.builds(
    LogPosition, st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 1000)
)
places = st.builds(Place, positions, st.none() | st.integers(0, 2**63 - 1))
topics = st.sampled_from([ORDERS, BILLS, "persistent://a/b/c"])
offsets = st.builds(
    SourceOffset,
    st.dictionaries(topics, places),
    st.dictionaries(topics, places),
    st.dictionaries(topics, st.lists(positions.map(lambda p: LogPosition(*p[:2]))).map(tuple)),
    st.lists(topics, unique=True).map(lambda names: tuple(sorted(names))),
    st.booleans(),
)


def signed_bytes(message_id: MessageId) -> list[int]:
    """As the Java connector writes them: Java's bytes have a sign."""
    return [byte - 256 if byte > 127 else byte for byte in message_id.to_bytes()]


def test_version_1_is_written_as_it_always_was() -> None:
    offset = SourceOffset(
        {
            ORDERS: Place(LogPosition(7, 4_000_000_000_000, 3), 9_000_000_000_000_000_000),
            BILLS: Place(LogPosition(12, 5)),
        },
        starts={ORDERS: Place(LogPosition(-1, -1))},
        cuts={BILLS: (LogPosition(11, 40), LogPosition(12, 0))},
        gone=("persistent://public/default/old",),
    )
    assert json.dumps(offset.to_json()) == (
        '{"v": 1, "p": {"persistent://public/default/bills-partition-3": [12, 5, -1, null], '
        '"persistent://public/default/orders": [7, 4000000000000, 3, 9000000000000000000]}, '
        '"from": {"persistent://public/default/orders": [-1, -1, -1, null]}, '
        '"plan": {"persistent://public/default/bills-partition-3": [[11, 40], [12, 0]]}, '
        '"gone": ["persistent://public/default/old"]}'
    )


def test_what_is_empty_is_left_out() -> None:
    offset = SourceOffset({ORDERS: Place(LogPosition(3, 0), 0)})
    assert json.dumps(offset.to_json()) == (
        '{"v": 1, "p": {"persistent://public/default/orders": [3, 0, -1, 0]}}'
    )


@given(offsets)
def test_an_offset_survives_its_json(offset: SourceOffset) -> None:
    written = json.dumps(offset.to_json())
    kept = SourceOffset.from_json(json.loads(written))
    assert json.dumps(kept.to_json()) == written
    assert kept.places == offset.places
    assert kept.starts == offset.starts


def test_version_0_names_the_last_message_that_was_read() -> None:
    # Of the Java connector: ledger 7, entry 200, partition 3 (protobuf 08 07 10 c8 01 18 03).
    offset = SourceOffset.from_json({BILLS: [8, 7, 16, -56, 1, 24, 3]})
    assert offset.places == {BILLS: Place(LogPosition(7, 201))}


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (MessageId(-1, -1), LogPosition(-1, -1)),
        (MessageId(9, -1), LogPosition(9, 0)),
        (MessageId(9, 4, 2, batch_size=10), LogPosition(9, 5)),
        (MessageId(2**40, 2**33), LogPosition(2**40, 2**33 + 1)),
    ],
)
def test_after_version_0_reading_goes_on_behind_the_entry(
    last: MessageId, following: LogPosition
) -> None:
    offset = SourceOffset.from_json({ORDERS: signed_bytes(last)})
    assert offset.places[ORDERS].position == following


def test_positions_that_users_give_are_the_first_message_they_want() -> None:
    given_by_user = {ORDERS: [4, 17], BILLS: [5, 0, 3]}
    assert parse_positions(given_by_user) == {
        ORDERS: LogPosition(4, 17),
        BILLS: LogPosition(5, 0, 3),
    }
    of_java = {ORDERS: signed_bytes(MessageId(4, 17)), BILLS: signed_bytes(MessageId(5, 0, 3))}
    assert parse_positions(of_java) == parse_positions(given_by_user)
    ours = SourceOffset({ORDERS: Place(LogPosition(4, 17)), BILLS: Place(LogPosition(5, 0, 3))})
    assert parse_positions(ours.to_json()) == parse_positions(given_by_user)


def test_the_start_in_an_offset_is_believed_before_one_that_was_made_anew() -> None:
    planned = SourceOffset({ORDERS: Place(LogPosition(7, 9))}, {ORDERS: Place(LogPosition(7, 2))})
    made_anew = SourceOffset({ORDERS: Place(LogPosition(7, 6))}, is_initial=True)
    assert planned.start_of(ORDERS, made_anew) == Place(LogPosition(7, 2))
    assert SourceOffset(planned.places).start_of(ORDERS, made_anew) == Place(LogPosition(7, 6))
    assert planned.start_of(BILLS, made_anew) is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        "latest",
        {"v": 2, "p": {}},
        {"v": 1},
        {"v": 1, "p": {ORDERS: [1, 2]}},
        {"v": 1, "p": {ORDERS: [1, 2, -1, "3"]}},
        {"v": 1, "p": {ORDERS: [1, True, -1, None]}},
        {"v": 1, "p": {}, "plan": {ORDERS: [[1]]}},
        {"v": 1, "p": {}, "plan": {ORDERS: 3}},
        {"v": 1, "p": {}, "gone": 3},
        {ORDERS: [1, 2, 3, 4]},
        {ORDERS: "x"},
    ],
)
def test_what_is_no_offset_is_refused(document: object) -> None:
    with pytest.raises(InvalidOffset):
        SourceOffset.from_json(document)


def test_a_newer_version_says_what_would_help() -> None:
    with pytest.raises(InvalidOffset, match="install the release that wrote it"):
        SourceOffset.from_json({"v": 2})
