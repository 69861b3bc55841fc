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

from magnetar_protocol.errors import WireError
from magnetar_protocol.pulsar.api_pb2 import MessageMetadata
from magnetar_protocol.pulsar.integers import signed
from magnetar_protocol.pulsar.payload import (
    BROKER_ENTRY_START,
    metadata_bounds,
    skip_broker_entry,
)
from magnetar_protocol.pulsar.protobuf import parse_message

# What a payload gives that has no key, no producer or no readable metadata (Commands.NONE_KEY).
NONE_KEY = b"NONE_KEY"

# A payload with a checksum whose metadata begins with a producer's name shorter than 128 bytes:
# +--------+----------+---------------+------+------+------+--------+------+--------+------+-------
# | magic  | checksum | metadata size | 0x0a | size | name | 0x10   | 0x18 | varint | 0x32 | size
# | 0x0e01 |  u32     |  u32          |      |      |      | varint |      |        |      | key ...
# +--------+----------+---------------+------+------+------+--------+------+--------+------+-------
# The varints are sequence_id=2 and publish_time=3, the key is partition_key=6.
PAYLOAD_MAGIC = b"\x0e\x01"
NAME_TAG_AT = 10
NAME_SIZE_AT = 11
NAME_AT = 12
NAME_TAG = 0x0A
_match_upto_key = re.compile(
    rb"\x10[\x80-\xff]*[\x00-\x7f]\x18[\x80-\xff]*[\x00-\x7f]\x32(?=[\x00-\x7f])"
).match
# Among the fields behind the key, two change what it is: partition_key_b64_encoded=17 and
# ordering_key=18. Where neither tag stands anywhere, neither field does.
_find_exception = re.compile(rb"[\x88\x92]\x01").search


def sticky_key(payload: bytes) -> bytes:
    """The ordering key, else the partition key, else producer and sequence id (as upstream's
    ``Commands.resolveStickyKey``); ``NONE_KEY`` where there is nothing of it."""
    if payload[:2] == PAYLOAD_MAGIC and len(payload) > NAME_AT and payload[NAME_TAG_AT] == NAME_TAG:
        found = _match_upto_key(payload, NAME_AT + payload[NAME_SIZE_AT])
        if found is not None and payload[NAME_SIZE_AT] < 128:
            key_at = found.end() + 1
            key_end = key_at + payload[key_at - 1]
            metadata_end = NAME_TAG_AT + int.from_bytes(payload[6:10], "big")
            if key_end <= metadata_end <= len(payload) and not _find_exception(
                payload, key_end, metadata_end
            ):
                return payload[key_at:key_end]
    if payload.startswith(BROKER_ENTRY_START):
        return _key_behind(payload)
    return _parsed_key(payload)


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
