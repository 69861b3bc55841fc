"""Messages on their way from one cluster to another: whose they are, and where they stood at home.

A replicator is a producer of the remote cluster. It sends each stored entry as it is, with two
things added to its metadata: the cluster that it comes from, and its position there. A remote
broker that deduplicates compares these positions, which only grow, and answers with them.

Facts: ``GeoPersistentReplicator``, ``GeoReplicationProducerImpl`` and ``MessageDeduplication`` of
Apache Pulsar 4.0.6.
"""

from __future__ import annotations

from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_front, metadata_bounds
from geminga_protocol.pulsar.messages.protobuf import parse_message

REPLICATOR_PREFIX = "pulsar.repl"
"""With which the names of replicators' cursors and producers begin."""
SOURCE_POSITION_PROPERTY = "__MSG_PROP_REPL_SOURCE_POSITION"
"""The position of a replicated entry at home, as ``ledger:entry``."""

SourcePosition = tuple[int, int]
"""Ledger and entry of a message in the cluster where it was published."""


def replicator_cursor(remote: str) -> str:
    """The cursor that says how far a topic is replicated to ``remote``."""
    return f"{REPLICATOR_PREFIX}.{remote}"


def remote_of_cursor(name: str) -> str | None:
    """The cluster that a replicator's cursor is for; None for any other cursor."""
    remote = name.removeprefix(f"{REPLICATOR_PREFIX}.")
    return None if remote in ("", name) else remote


def replicator_producer(source: str, target: str) -> str:
    """The name of the producer by which ``source`` replicates to ``target``."""
    return f"{replicator_cursor(source)}-->{target}"


def is_replicator(producer_name: str) -> bool:
    """Whether a producer of that name replicates from another cluster."""
    return producer_name.startswith(REPLICATOR_PREFIX)


def source_position(metadata: MessageMetadata) -> SourcePosition | None:
    """Where the message stood at home; None where it does not say so in the form of upstream."""
    for each in metadata.properties:
        if each.key == SOURCE_POSITION_PROPERTY:
            ledger_id, separator, entry_id = each.value.partition(":")
            if separator and _is_number(ledger_id) and _is_number(entry_id):
                return int(ledger_id), int(entry_id)
            return None
    return None


def _is_number(text: str) -> bool:
    # Of 63 bits at most, in ASCII: what Java would not take as a long is no position.
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << 63


def stored_metadata(payload: bytes) -> tuple[MessageMetadata, int]:
    """The metadata of a stored entry, and where its body begins. Raises ``WireError``."""
    start, body_start = metadata_bounds(payload, 0, len(payload))
    return parse_message(MessageMetadata, payload[start:body_start]), body_start


def replicated_front(
    metadata: MessageMetadata,
    body: memoryview,
    *,
    source: str,
    position: SourcePosition,
    schema_version: bytes = b"",
) -> bytes:
    """What stands in front of ``body`` in the payload to send to another cluster, which has a
    checksum of its own; changes ``metadata``.

    The body stays as it is stored, compressed or encrypted, and is not copied: it may be a large
    batch. ``schema_version`` is the one that the
    remote cluster has for the schema of the message, empty for none. A transaction belongs to its
    own cluster, and is over when its messages are replicated.
    """
    metadata.replicated_from = source
    metadata.ClearField("txnid_least_bits")
    metadata.ClearField("txnid_most_bits")
    if schema_version:
        metadata.schema_version = schema_version
    else:
        metadata.ClearField("schema_version")
    # Readers take the first property of that name: one that a client has set must not stand there.
    kept = [each for each in metadata.properties if each.key != SOURCE_POSITION_PROPERTY]
    if len(kept) < len(metadata.properties):
        pairs = [(each.key, each.value) for each in kept]
        del metadata.properties[:]
        for key, value in pairs:
            metadata.properties.add(key=key, value=value)
    ledger_id, entry_id = position
    metadata.properties.add(key=SOURCE_POSITION_PROPERTY, value=f"{ledger_id}:{entry_id}")
    return encode_front(metadata, body)
