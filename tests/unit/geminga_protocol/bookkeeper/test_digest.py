"""Entries are laid out and digested as BookKeeper's, and no damage to one goes unnoticed."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper.digest import (
    ANY_ENTRY,
    EMPTY_PASSWORD_MASTER_KEY,
    decode_entry,
    encode_entry_header,
    master_key,
)
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch

ids = st.integers(0, 2**63 - 1)


def make_entry(payload: bytes, ledger_id: int = 7, entry_id: int = 41) -> bytes:
    return encode_entry_header(ledger_id, entry_id, 40, 9000, payload) + payload


@given(ids, ids, st.integers(-1, 2**63 - 1), ids, st.binary(max_size=300))
def test_a_header_is_four_numbers_and_the_checksum_of_them_and_the_payload(
    ledger_id: int, entry_id: int, last_confirmed: int, length: int, payload: bytes
) -> None:
    digested = pack(">qqqq", ledger_id, entry_id, last_confirmed, length)
    expected = digested + pack(">I", crc32c(digested + payload))
    assert encode_entry_header(ledger_id, entry_id, last_confirmed, length, payload) == expected


@pytest.mark.parametrize("payload_bytes", [0, 1, 100, 100_000])
def test_an_entry_decodes_to_what_was_encoded(payload_bytes: int) -> None:
    payload = bytes(index % 251 for index in range(payload_bytes))
    entry = make_entry(payload)
    buffer = b"before" + entry + b"after"
    assert decode_entry(buffer, 6, 6 + len(entry), 7, 41) == (41, 40, 9000, payload)


def test_the_last_entry_is_whatever_entry_of_the_ledger_comes() -> None:
    entry = make_entry(b"payload")
    assert decode_entry(entry, 0, len(entry), 7, ANY_ENTRY)[0] == 41


@pytest.mark.parametrize("payload_bytes", [5, 20_000])
@pytest.mark.parametrize(("ledger_id", "entry_id"), [(8, 41), (7, 42), (8, ANY_ENTRY)])
def test_another_entry_than_the_one_asked_for_is_refused(
    ledger_id: int, entry_id: int, payload_bytes: int
) -> None:
    entry = make_entry(bytes(payload_bytes))
    with pytest.raises(EntryDigestMismatch, match="is entry 41 of ledger 7"):
        decode_entry(entry, 0, len(entry), ledger_id, entry_id)


@pytest.mark.parametrize("payload_bytes", [5, 20_000])
def test_one_flipped_bit_anywhere_is_noticed(payload_bytes: int) -> None:
    entry = make_entry(bytes(payload_bytes))
    for position in [*range(41), len(entry) - 1]:
        for bit in range(8):
            damaged = bytearray(entry)
            damaged[position] ^= 1 << bit
            with pytest.raises(EntryDigestMismatch):
                decode_entry(bytes(damaged), 0, len(damaged), 7, 41)


def test_an_entry_cut_anywhere_is_refused() -> None:
    entry = make_entry(b"payload")
    for end in range(len(entry)):
        with pytest.raises(EntryDigestMismatch):
            decode_entry(entry, 0, end, 7, 41)


def test_an_entry_that_ends_behind_its_buffer_is_refused() -> None:
    entry = make_entry(b"payload")
    with pytest.raises(EntryDigestMismatch):
        decode_entry(entry, 0, len(entry) + 1, 7, 41)


def test_the_master_key_of_the_empty_password_is_the_recorded_one() -> None:
    assert EMPTY_PASSWORD_MASTER_KEY.hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"") == EMPTY_PASSWORD_MASTER_KEY
    assert master_key(b"secret") != EMPTY_PASSWORD_MASTER_KEY
