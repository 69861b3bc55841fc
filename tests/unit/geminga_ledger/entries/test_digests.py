"""Entries under every digest of BookKeeper's are read, and no byte of them may be another."""

from __future__ import annotations

import hmac
import zlib
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_ledger.entries.digests import entry_decoder, explicit_lac_decoder, payload_decoder
from geminga_protocol.bookkeeper.digest import (
    ANY_ENTRY,
    DIGESTED_HEADER,
    decode_entry,
    encode_entry_header,
)
from geminga_protocol.bookkeeper.errors import EntryDigestMismatch
from geminga_protocol.bookkeeper.v3_requests import encode_explicit_lac
from geminga_protocol.records.ledgers.ledger_metadata import DigestType

LEDGER, ENTRY = 7, 3
PASSWORD = b"secret"
PAYLOAD = b"payload"
HEADER = DIGESTED_HEADER.pack(LEDGER, ENTRY, 2, 100)


def entry_with(digest_type: DigestType) -> bytes:
    """An entry as BookKeeper's own digest managers make it."""
    if digest_type is DigestType.CRC32C:
        return encode_entry_header(LEDGER, ENTRY, 2, 100, PAYLOAD) + PAYLOAD
    digests = {
        DigestType.CRC32: zlib.crc32(HEADER + PAYLOAD).to_bytes(8, "big"),
        DigestType.HMAC: hmac.new(
            sha1(b"mac" + PASSWORD).digest(), HEADER + PAYLOAD, "sha1"
        ).digest(),
        DigestType.DUMMY: b"",
    }
    return HEADER + digests[digest_type] + PAYLOAD


@pytest.mark.parametrize("digest_type", DigestType)
def test_an_entry_is_taken_apart_or_left_whole(digest_type: DigestType) -> None:
    entry = entry_with(digest_type)
    buffer = b"before" + entry + b"after"
    bounds = 6, 6 + len(entry)
    for entry_id in (ENTRY, ANY_ENTRY):
        taken = payload_decoder(digest_type, PASSWORD)(buffer, *bounds, LEDGER, entry_id)
        assert taken == (ENTRY, 2, 100, PAYLOAD)
        whole = entry_decoder(digest_type, PASSWORD)(buffer, *bounds, LEDGER, entry_id)
        assert whole == (ENTRY, 2, 100, entry)


@given(st.sampled_from(sorted(set(DigestType) - {DigestType.DUMMY})), st.data())
def test_no_byte_may_be_another(digest_type: DigestType, data: st.DataObject) -> None:
    entry = bytearray(entry_with(digest_type))
    place = data.draw(st.integers(0, len(entry) - 1))
    entry[place] ^= data.draw(st.integers(1, 255))
    for decoder in (payload_decoder, entry_decoder):
        with pytest.raises(EntryDigestMismatch):
            decoder(digest_type, PASSWORD)(bytes(entry), 0, len(entry), LEDGER, ENTRY)


@given(st.sampled_from(DigestType), st.binary(max_size=60))
def test_garbage_is_no_entry(digest_type: DigestType, garbage: bytes) -> None:
    for decoder in (payload_decoder, entry_decoder):
        with pytest.raises(EntryDigestMismatch):
            decoder(digest_type, PASSWORD)(garbage, 0, len(garbage), LEDGER, ENTRY)


def test_another_password_makes_another_hmac() -> None:
    entry = entry_with(DigestType.HMAC)
    with pytest.raises(EntryDigestMismatch):
        payload_decoder(DigestType.HMAC, b"other")(entry, 0, len(entry), LEDGER, ENTRY)


@pytest.mark.parametrize("digest_type", [None, *DigestType])
def test_an_entry_of_another_place_is_not_the_one(digest_type: DigestType | None) -> None:
    entry = entry_with(digest_type or DigestType.CRC32)
    decode = entry_decoder(digest_type, PASSWORD)
    for ledger_id, entry_id in ((LEDGER, ENTRY + 1), (LEDGER + 1, ENTRY)):
        with pytest.raises(EntryDigestMismatch, match="is entry 3 of ledger 7"):
            decode(entry, 0, len(entry), ledger_id, entry_id)


def test_without_a_known_digest_nothing_else_is_checked() -> None:
    entry = HEADER + b"whatever"
    whole = entry_decoder(None, PASSWORD)(entry, 0, len(entry), LEDGER, ENTRY)
    assert whole == (ENTRY, 2, 100, entry)


def test_the_usual_digest_takes_the_usual_way() -> None:
    assert payload_decoder(DigestType.CRC32C, PASSWORD) is decode_entry


LAC_IDS = LEDGER.to_bytes(8, "big") + ENTRY.to_bytes(8, "big")


def explicit_lac_with(digest_type: DigestType) -> bytes:
    """What BookKeeper's own digest managers make of "entry 3 is confirmed"."""
    if digest_type is DigestType.CRC32C:
        return encode_explicit_lac(LEDGER, ENTRY)
    digests = {
        DigestType.CRC32: zlib.crc32(LAC_IDS).to_bytes(8, "big"),
        DigestType.HMAC: hmac.new(sha1(b"mac" + PASSWORD).digest(), LAC_IDS, "sha1").digest(),
        DigestType.DUMMY: b"",
    }
    return LAC_IDS + digests[digest_type]


@pytest.mark.parametrize("digest_type", DigestType)
def test_what_a_writer_says_is_confirmed_is_read(digest_type: DigestType) -> None:
    body = explicit_lac_with(digest_type)
    assert explicit_lac_decoder(digest_type, PASSWORD)(body, LEDGER) == ENTRY
    assert explicit_lac_decoder(None, PASSWORD)(body, LEDGER) == ENTRY


@given(st.sampled_from(sorted(set(DigestType) - {DigestType.DUMMY})), st.data())
def test_no_byte_of_it_may_be_another(digest_type: DigestType, data: st.DataObject) -> None:
    body = bytearray(explicit_lac_with(digest_type))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EntryDigestMismatch):
        explicit_lac_decoder(digest_type, PASSWORD)(bytes(body), LEDGER)


@pytest.mark.parametrize("digest_type", DigestType)
def test_what_is_short_or_of_another_ledger_confirms_nothing(digest_type: DigestType) -> None:
    body = explicit_lac_with(digest_type)
    decode = explicit_lac_decoder(digest_type, PASSWORD)
    for wrong in (b"", body[:-1]):
        with pytest.raises(EntryDigestMismatch):
            decode(wrong, LEDGER)
    with pytest.raises(EntryDigestMismatch, match="of ledger 7"):
        decode(body, LEDGER + 1)
