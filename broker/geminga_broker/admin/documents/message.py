"""A stored entry as REST shows it: its metadata as headers, its body decompressed. Pure.

The headers are upstream's (``PersistentTopicsBase``, ``generateResponseWithEntry``).
"""

from __future__ import annotations

import json
from base64 import b64encode

from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.pulsar.api_pb2 import CompressionType
from geminga_protocol.pulsar.messages.payload import (
    metadata_bounds,
    parse_broker_entry,
    parse_metadata,
)
from geminga_protocol.pulsar.messages.timestamps import iso_time
from geminga_protocol.records.encodings.compression import inflate

PREFIX = "X-Pulsar-"

# More than any broker accepts as one message: a body that claims more would only fill the memory.
# Sizes in metadata are what a client claims; they are checked before memory is taken for them.
INFLATED_BYTES_MAX = 128 * 1024 * 1024

# Fields of the metadata and the names of their headers. Those in ``_PLAIN`` are shown as they are;
# each is left out where it is not set.
_PLAIN = {
    "replicated_from": "replicated-from",
    "partition_key": "partition-key",
    "partition_key_b64_encoded": "partition-key-b64-encoded",
    "uncompressed_size": "uncompressed-size",
    "encryption_algo": "encryption-algo",
    "marker_type": "marker-type",
    "txnid_least_bits": "txnid-least-bits",
    "txnid_most_bits": "txnid-most-bits",
    "highest_sequence_id": "highest-sequence-id",
    "uuid": "uuid",
    "num_chunks_from_msg": "num-chunks-from-msg",
    "total_chunk_msg_size": "total-chunk-msg-size",
    "chunk_id": "chunk-id",
    "null_partition_key": "null-partition-key",
    "null_value": "null-value",
}
# Bytes, which no header can carry: as Base64, and named so.
_BASE64 = {
    "encryption_param": "Base64-encryption-param",
    "ordering_key": "Base64-ordering-key",
    "schema_version": "Base64-schema-version",
}
_TIMES = {"event_time": "event-time", "deliver_at_time": "deliver-at-time"}


def message_headers(position: Position, payload: bytes) -> dict[str, str]:
    """The headers for the entry at ``position``. Raises ``WireError`` for what is no message."""
    metadata = parse_metadata(payload)
    # Where the metadata begins and the body does; a broker entry and a checksum may stand in front.
    metadata_start, body_start = metadata_bounds(payload, 0, len(payload))
    headers = {
        f"{PREFIX}Message-ID": str(position),
        f"{PREFIX}PROPERTY": _json({pair.key: pair.value for pair in metadata.properties}),
        f"{PREFIX}publish-time": iso_time(metadata.publish_time),
        # By the keys alone: an encrypted message has one at least.
        f"{PREFIX}Is-Encrypted": _text(bool(metadata.encryption_keys)),
        f"{PREFIX}producer-name": metadata.producer_name,
        f"{PREFIX}sequence-id": str(metadata.sequence_id),
        f"{PREFIX}txn-uncommitted": "false",
    }
    if metadata.HasField("num_messages_in_batch"):
        headers[f"{PREFIX}num-batch-message"] = str(metadata.num_messages_in_batch)
        # As upstream, all bytes but the metadata: the checksum and the sizes count.
        headers[f"{PREFIX}batch-size"] = str(len(payload) - (body_start - metadata_start))
    if metadata.HasField("compression"):
        headers[f"{PREFIX}compression"] = CompressionType.Name(metadata.compression)
    for field, name in _PLAIN.items():
        # A field that was never set is left out, also where its default is a value.
        if metadata.HasField(field):  # type: ignore[arg-type]  # the names of its fields
            headers[PREFIX + name] = _text(getattr(metadata, field))
    for field, name in _BASE64.items():
        if metadata.HasField(field):  # type: ignore[arg-type]  # as above
            headers[PREFIX + name] = b64encode(getattr(metadata, field)).decode()
    for field, name in _TIMES.items():
        if metadata.HasField(field):  # type: ignore[arg-type]  # as above
            headers[PREFIX + name] = iso_time(getattr(metadata, field))
    if metadata.replicate_to:
        headers[f"{PREFIX}replicated-to"] = _json(list(metadata.replicate_to))
    # What the broker wrote in front of the entry, where that is configured. Fields of the broker's
    # (``BrokerEntryMetadata``), which are no part of the message's metadata.
    noted = parse_broker_entry(payload, 0, len(payload))
    if noted is not None:
        headers[f"{PREFIX}Broker-Entry-METADATA-timestamp"] = iso_time(noted.broker_timestamp)
        headers[f"{PREFIX}Broker-Entry-METADATA-index"] = str(noted.index)
    return headers


def message_body(payload: bytes) -> bytes:
    """The message, or its batch, as the producer had it before it was compressed.

    An encrypted one is returned as it is stored, for it was compressed before it was encrypted; so
    is one that claims to be larger than any message may be. Raises ``WireError``,
    ``MalformedRecord``.
    """
    metadata = parse_metadata(payload)
    _, body_start = metadata_bounds(payload, 0, len(payload))
    body = payload[body_start:]
    # The keys are there only where the message is encrypted.
    if metadata.compression == CompressionType.NONE or metadata.encryption_keys:
        return body
    if metadata.uncompressed_size > INFLATED_BYTES_MAX:
        return body
    # A block of LZ4 does not say how large it gets: the metadata does.
    return inflate(int(metadata.compression), body, metadata.uncompressed_size, "message")


def _json(value: object) -> str:
    """JSON on one line and in ASCII, as a header takes it."""
    return json.dumps(value, separators=(",", ":"))


def _text(value: object) -> str:
    """A value as Java prints it; text that no header can carry is escaped as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    # ASCII without control characters passes as it is; a line break in a producer's name would end
    # the header.
    return text if text.isascii() and text.isprintable() else json.dumps(text)


def message_id(position: Position, partition_index: int) -> dict[str, int]:
    """The id of a message that is not in a batch; ``partition_index`` -1: not partitioned."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition_index,
        "batchSize": 0,
        "batchIndex": -1,
    }
