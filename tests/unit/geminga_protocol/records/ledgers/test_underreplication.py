"""Auto-recovery's marks stand where BookKeeper looks for them and read as it writes them."""

from __future__ import annotations

import pytest

from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.underreplication import (
    UnderreplicatedLedger,
    check_layout,
    decode_last_check,
    decode_leader,
    decode_lock,
    decode_lost_bookie_delay,
    decode_vote,
    encode_last_check,
    encode_layout,
    encode_leader,
    encode_lock,
    encode_lost_bookie_delay,
    encode_vote,
    lock_path,
    mark_path,
    marked_ledger_id,
    votes_in_order,
)


def test_a_mark_names_the_bookies_a_line_each() -> None:
    mark = UnderreplicatedLedger(missing_bookies=("b1:3181", "b2:3181"), marked_at_ms=7)
    assert mark.encode() == b'replica: "b1:3181"\nreplica: "b2:3181"\nctime: 7\n'
    assert UnderreplicatedLedger.decode(mark.encode()) == mark


def test_a_mark_without_a_time_comes_back() -> None:
    mark = UnderreplicatedLedger(missing_bookies=())
    assert UnderreplicatedLedger.decode(mark.encode()) == mark


def test_a_mark_stands_below_its_ledgers_id_in_hexadecimal() -> None:
    base = "/ledgers/underreplication"
    assert mark_path(5) == f"{base}/ledgers/0000/0000/0000/0005/urL0000000005"
    path = mark_path(0x4AFEBEEF0000FEED)
    assert path == f"{base}/ledgers/4afe/beef/0000/feed/urL{0x4AFEBEEF0000FEED}"
    assert lock_path(5) == f"{base}/locks/urL0000000005"


def test_the_layout_is_the_recorded_one() -> None:
    assert encode_layout() == b'type: "BASIC"\nversion: 1\n'
    check_layout(encode_layout())


def test_another_layout_is_refused() -> None:
    with pytest.raises(UnsupportedRecord, match="BASIC 2"):
        check_layout(b'type: "BASIC"\nversion: 2\n')
    with pytest.raises(MalformedRecord):
        check_layout(b'type: "BASIC"\n')


def test_the_time_of_the_last_check_comes_back() -> None:
    assert decode_last_check(encode_last_check(1795230900000)) == 1795230900000
    assert decode_last_check(b"") == 0


@pytest.mark.parametrize("ledger_id", [0, 5, (1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_marks_and_locks_name_their_ledger(ledger_id: int) -> None:
    for path in (mark_path(ledger_id), lock_path(ledger_id)):
        assert marked_ledger_id(path.rpartition("/")[2]) == ledger_id


@pytest.mark.parametrize("name", ["", "0000", "urL", "urLx", "urL-1", "L0005", f"urL{1 << 63}"])
def test_other_nodes_mark_nothing(name: str) -> None:
    assert marked_ledger_id(name) is None


def test_locks_and_votes_tell_whose_they_are() -> None:
    assert encode_lock("b1:3181") == encode_vote("b1:3181") == b'bookieId: "b1:3181"\n'
    assert decode_lock(encode_lock("b1:3181")) == decode_vote(encode_vote("b1:3181")) == "b1:3181"
    assert decode_lock(b"") == ""
    with pytest.raises(MalformedRecord):
        decode_vote(b"who?")


def test_votes_are_counted_by_number_and_what_is_no_vote_is_not() -> None:
    names = ["V_0000000010", "V_0000000009", "v_1", "V_", "V_-2147483648", "V_1x", "leader"]
    assert votes_in_order(names) == ["V_-2147483648", "V_0000000009", "V_0000000010"]


def test_the_leader_is_the_recorded_json() -> None:
    assert encode_leader("127.0.0.1:23182") == b'"127.0.0.1:23182"'
    assert decode_leader(b'"127.0.0.1:23182"') == "127.0.0.1:23182"
    for garbage in (b"", b"1", b'"', b"\xff"):
        with pytest.raises(MalformedRecord):
            decode_leader(garbage)


def test_the_grace_of_a_lost_bookie_is_a_decimal_number() -> None:
    assert encode_lost_bookie_delay(600) == b"600"
    assert decode_lost_bookie_delay(b"600") == 600
    for garbage in (b"", b"-1", b"1.5", b"9" * 11, "٣".encode()):
        with pytest.raises(MalformedRecord):
            decode_lost_bookie_delay(garbage)
