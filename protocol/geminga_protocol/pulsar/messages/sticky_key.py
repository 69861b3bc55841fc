"""The key by which Key_Shared subscriptions keep messages together, read from a stored payload.

It is called for every entry that is dispatched. What clients usually write (name, sequence id,
publish time, then the key) is found with one regular expression, 0.7 us instead of the 1.2 us of
parsing the metadata (CPython 3.11, upb); everything else is left to protobuf.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import suppress

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.integers import decode_varint, signed
from geminga_protocol.pulsar.messages.payload import (
    BROKER_ENTRY_START,
    CHECKSUM_MAGIC,
    metadata_bounds,
    skip_broker_entry,
)
from geminga_protocol.pulsar.messages.protobuf import parse_message
from geminga_protocol.pulsar.messages.usual_metadata import (
    END,
    METADATA_AT,
    NAME_AT,
    NAME_HEAD,
    NAME_HEAD_MAX,
    POSITIVE,
    VARINT,
    read_head,
)

# What a payload gives that has no key, no producer or no readable metadata (Commands.NONE_KEY).
NONE_KEY = b"NONE_KEY"

# From the end of the producer's name: up to the key; or to the end of the metadata, where there is
# no key, with the sequence id as the group.
_match_upto_key = re.compile(rb"\x10" + VARINT + rb"\x18" + VARINT + rb"\x32(?=[\x00-\x7f])").match
_match_keyless = re.compile(rb"\x10(" + POSITIVE + rb")\x18" + VARINT + END).fullmatch
# Among the fields behind the key, two change what it is: partition_key_b64_encoded=17 and
# ordering_key=18. Where neither tag stands anywhere, neither field does.
_find_exception = re.compile(rb"[\x88\x92]\x01").search


def sticky_key(payload: bytes) -> bytes:
    """The ordering key, else the partition key, else producer and sequence id (as upstream's
    ``Commands.resolveStickyKey``); ``NONE_KEY`` where there is nothing of it."""
    if len(payload) >= NAME_AT:
        magic, _, metadata_bytes, name_head = read_head(payload)
        metadata_end = METADATA_AT + metadata_bytes
        if (
            magic == CHECKSUM_MAGIC
            and NAME_HEAD <= name_head <= NAME_HEAD_MAX
            and metadata_end <= len(payload)
        ):
            key = _usual_key(payload, NAME_AT - NAME_HEAD + name_head, metadata_end)
            if key is not None:
                return key
    if payload.startswith(BROKER_ENTRY_START):
        return _key_behind(payload)
    return _parsed_key(payload)


def _usual_key(payload: bytes, name_end: int, metadata_end: int) -> bytes | None:
    """The key where the metadata is as clients usually write it; None for any other."""
    found = _match_upto_key(payload, name_end)
    if found is not None:
        key_at = found.end() + 1
        key_end = key_at + payload[key_at - 1]
        if key_end == metadata_end or (
            key_end < metadata_end and not _find_exception(payload, key_end, metadata_end)
        ):
            return payload[key_at:key_end]
        return None
    found = _match_keyless(payload, name_end, metadata_end)
    name = payload[NAME_AT:name_end]
    if found is None or not name.isascii():
        return None
    return b"%b-%d" % (name, decode_varint(found[1], 0)[0])


def _key_behind(payload: bytes) -> bytes:
    """The key of a payload with broker entry metadata in front."""
    try:
        sent = payload[skip_broker_entry(payload, 0, len(payload)) :]
    except WireError:
        return NONE_KEY
    # Twice in front of each other is nobody's doing but a forger's.
    return NONE_KEY if sent.startswith(BROKER_ENTRY_START) else sticky_key(sent)


def _parsed_key(payload: bytes) -> bytes:
    try:
        start, end = metadata_bounds(payload, 0, len(payload))
        metadata = parse_message(MessageMetadata, payload[start:end])
    except WireError:
        return NONE_KEY
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = metadata.partition_key
        if metadata.partition_key_b64_encoded:
            with suppress(Base64Error):  # without meaning it: the text keeps messages together
                return b64decode(key, validate=True)
        return key.encode()
    return f"{metadata.producer_name}-{signed(metadata.sequence_id)}".encode()
