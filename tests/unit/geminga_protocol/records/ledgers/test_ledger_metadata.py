"""Ledger metadata says what BookKeeper's does, at the paths where BookKeeper looks for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord
from geminga_protocol.records.ledgers.ledger_metadata import (
    LEDGER_ID_MAX,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    ledger_id_of,
    ledger_path,
)

B1, B2, B3, B4 = "b1:3181", "b2:3181", "b3:3181", "b4:3181"


def make_ledger() -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(0, (B1, B2, B3)), Fragment(10, (B4, B2, B3))),
        custom={"component": b"managed-ledger", "application": b"pulsar"},
        creation_token=-42,
    )


def test_a_new_ledger_is_open_empty_and_digested_with_crc32c() -> None:
    ledger = LedgerMetadata.decode(make_ledger().encode())
    assert ledger == make_ledger()
    assert ledger.state is LedgerState.OPEN
    assert (ledger.last_entry, ledger.length) == (-1, 0)
    assert ledger.digest_type is DigestType.CRC32C
    assert ledger.password == b""
    assert ledger.creation_time_ms is None


def test_the_order_of_custom_pairs_is_kept() -> None:
    assert list(LedgerMetadata.decode(make_ledger().encode()).custom) == [
        "component",
        "application",
    ]


def test_recovery_and_closing_change_only_the_state_and_the_end() -> None:
    recovering = make_ledger().in_recovery()
    assert recovering.state is LedgerState.IN_RECOVERY
    closed = LedgerMetadata.decode(recovering.closed(19, 1460).encode())
    assert closed.state is LedgerState.CLOSED
    assert (closed.last_entry, closed.length) == (19, 1460)
    assert closed.fragments == make_ledger().fragments


@pytest.mark.parametrize(
    ("entry_id", "first_bookie"), [(0, B1), (9, B1), (10, B4), (11, B4), (10**9, B4)]
)
def test_the_ensemble_of_an_entry_is_its_fragments(entry_id: int, first_bookie: str) -> None:
    assert make_ledger().ensemble_of(entry_id)[0] == first_bookie


def test_without_fragments_no_ensemble_holds_an_entry() -> None:
    ledger = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=())
    assert ledger.ensemble_of(0) == ()


def test_what_old_writers_left_out_stays_out() -> None:
    ledger = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(),
        digest_type=None,
        password=None,
        creation_time_ms=5,
        creation_token=None,
    )
    assert LedgerMetadata.decode(ledger.encode()) == ledger


def test_a_record_longer_than_a_one_byte_size_decodes() -> None:
    bookies = tuple(f"bookie-{number}.example.org:3181" for number in range(5000))
    ledger = LedgerMetadata(
        ensemble_size=5000, write_quorum=2, ack_quorum=2, fragments=(Fragment(0, bookies),)
    )
    assert LedgerMetadata.decode(ledger.encode()) == ledger


@pytest.mark.parametrize(
    "value",
    [
        b"BookieMetadataFormatVersion\t2\nquorumSize: 2\n",
        b"BookieMetadataFormatVersion\t1\n2\n3\n0\n",
        b"BookieMetadataFormatVersion\t4\n\x00",
    ],
)
def test_other_versions_of_the_format_are_refused_by_name(value: bytes) -> None:
    with pytest.raises(UnsupportedRecord, match="where 3 is read"):
        LedgerMetadata.decode(value)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"BookieMetadataFormatVersion\t",
        b"BookieMetadataFormatVersion\t33333333333\n",
        b"BookieMetadataFormatVersion\t3\n",
        b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\xff\xff",
        b"BookieMetadataFormatVersion\t3\n\x05abc",
        b"BookieMetadataFormatVersion\t3\n\x00",
        b"BookieMetadataFormatVersion\t3\n\x0d\x08\x01\x10\x01\x18\x00\x28\x01\x32\x03\x0a\x01\xff",
    ],
)
def test_what_is_no_ledger_metadata_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        LedgerMetadata.decode(value)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (5, "/ledgers/00/0000/L0005"),
        (1234567890, "/ledgers/12/3456/L7890"),
        (2**31 - 2, "/ledgers/21/4748/L3646"),
        (2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (LEDGER_ID_MAX, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_a_ledger_stands_at_its_path(ledger_id: int, path: str) -> None:
    assert ledger_path(ledger_id) == path
    assert ledger_id_of(path) == ledger_id


@given(st.integers(0, LEDGER_ID_MAX))
def test_a_path_leads_back_to_its_ledger(ledger_id: int) -> None:
    assert ledger_id_of(ledger_path(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path",
    [
        "/ledgers",
        "/ledgers/00",
        "/ledgers/00/0000",
        "/ledgers/00/0000/L005",
        "/ledgers/00/0000/L0005/x",
        "/ledgers/00/0000/0005",
        "/ledgers/available/b1:3181",
        "/ledgers/999/9999/9999/9999/L9999",
        "/ledgers/\u0660\u0660/0000/L0005",
    ],
)
def test_other_paths_are_no_ledgers(path: str) -> None:
    assert ledger_id_of(path) is None
