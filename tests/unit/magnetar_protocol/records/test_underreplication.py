"""Auto-recovery's marks stand where BookKeeper looks for them and read as it writes them."""

from __future__ import annotations

import pytest

from magnetar_protocol.records.errors import MalformedRecord, UnsupportedRecord
from magnetar_protocol.records.underreplication import (
    UnderreplicatedLedger,
    check_layout,
    decode_last_check,
    encode_last_check,
    encode_layout,
    lock_path,
    mark_path,
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
