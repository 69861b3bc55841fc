"""The compacted ledger of a topic: the newest message of each key.

Each entry is a stored entry of the topic behind its id. The topic's cursor ``__compaction`` names
the ledger in a property of its position, which is the last one that was compacted. Facts:
``RawMessageImpl``, ``Compactor`` and ``LedgerMetadataUtils`` of Apache Pulsar.
"""

from __future__ import annotations

from struct import Struct

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageIdData
from geminga_protocol.pulsar.messages.integers import signed
from geminga_protocol.pulsar.messages.protobuf import parse_message
from geminga_protocol.records.errors import MalformedRecord

# The topic's subscription that compaction reads with, and the property that names the ledger.
COMPACTION_CURSOR = "__compaction"
COMPACTED_LEDGER_PROPERTY = "CompactedTopicLedger"

_RECORD = "compacted message"

# +---------+---------------+--------------+----------------------------------+
# | id size | MessageIdData | payload size | payload, as an entry stores it   |
# |   u32   |               |     u32      |                                  |
# +---------+---------------+--------------+----------------------------------+
SIZE = Struct(">I")
SIZE_BYTES = 4
assert SIZE.size == SIZE_BYTES


def encode_compacted(ledger_id: int, entry_id: int, payload: bytes, *, partition: int) -> bytes:
    """One entry of a compacted ledger; ``partition`` is -1 in a topic without partitions."""
    place = encode_place(ledger_id, entry_id, partition=partition)
    return b"".join((SIZE.pack(len(place)), place, SIZE.pack(len(payload)), payload))


def encode_place(ledger_id: int, entry_id: int, *, partition: int) -> bytes:
    """The id of an entry, as an encoded ``MessageIdData``."""
    place = MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    if partition >= 0:
        place.partition = partition
    return place.SerializeToString()


def decode_compacted(entry: bytes) -> tuple[int, int, bytes]:
    """``(ledger_id, entry_id, payload)`` of an entry. Raises ``MalformedRecord``."""
    # Both sizes are checked against the entry before anything is cut out of it.
    place_end = SIZE_BYTES + _size_at(entry, 0)
    payload_start = place_end + SIZE_BYTES
    payload_end = payload_start + _size_at(entry, place_end)
    # Bytes behind the payload are ignored.
    if payload_end > len(entry):
        raise MalformedRecord(_RECORD, "its payload is cut off")
    try:
        place = parse_message(MessageIdData, entry[SIZE_BYTES:place_end])
    except WireError as error:
        raise MalformedRecord(_RECORD, f"its place makes no sense: {error}") from error
    return signed(place.ledgerId), signed(place.entryId), entry[payload_start:payload_end]


def _size_at(entry: bytes, start: int) -> int:
    if start + SIZE_BYTES > len(entry):
        raise MalformedRecord(_RECORD, "it is cut off")
    (size_bytes,) = SIZE.unpack_from(entry, start)
    return int(size_bytes)


def compacted_ledger_labels(topic: str, upto: bytes) -> dict[str, bytes]:
    """The custom metadata of a compacted ledger of ``topic``; ``upto`` is of ``encode_place``."""
    return {
        # Tools of operators find by these pairs what a ledger is for; brokers do not read them.
        "application": b"pulsar",
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": topic.encode(),
        "pulsar/compactedTo": upto,
    }
