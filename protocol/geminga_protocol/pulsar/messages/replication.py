"""What geo-replication adds to a message: the source cluster, and the position there.

A replicator is a producer of the remote cluster. It sends each stored entry as it is, with two
additions to its metadata: the cluster in which the message was published, and the entry's position
there. A remote broker that deduplicates compares these positions, which only grow, and puts them
into its receipts.

Facts: ``GeoPersistentReplicator``, ``GeoReplicationProducerImpl`` and ``MessageDeduplication`` of
Apache Pulsar 4.0.6.
"""

from __future__ import annotations

from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_front, metadata_bounds
from geminga_protocol.pulsar.messages.protobuf import parse_message

# The names of replicators' cursors and producers begin so.
REPLICATOR_PREFIX = "pulsar.repl"
# A property of a replicated message: its position in the source cluster, as ``ledger:entry``.
SOURCE_POSITION_PROPERTY = "__MSG_PROP_REPL_SOURCE_POSITION"

# (ledger_id, entry_id) of a message in the cluster where it was published.
SourcePosition = tuple[int, int]


def replicator_cursor(remote: str) -> str:
    """The name of the cursor that records how far a topic is replicated to cluster ``remote``."""
    return f"{REPLICATOR_PREFIX}.{remote}"


def remote_of_cursor(name: str) -> str | None:
    """The cluster that a replicator's cursor is for; None for any other cursor."""
    # A name without the prefix comes back as it was.
    remote = name.removeprefix(f"{REPLICATOR_PREFIX}.")
    return None if remote in ("", name) else remote


def replicator_producer(source: str, target: str) -> str:
    """The name of the producer by which ``source`` replicates to ``target``."""
    return f"{replicator_cursor(source)}-->{target}"


def is_replicator(producer_name: str) -> bool:
    """Whether a producer with this name is a replicator of another cluster."""
    return producer_name.startswith(REPLICATOR_PREFIX)


def source_position(metadata: MessageMetadata) -> SourcePosition | None:
    """The message's position in its source cluster; None without one in upstream's form."""
    for each in metadata.properties:
        if each.key == SOURCE_POSITION_PROPERTY:
            ledger_id, separator, entry_id = each.value.partition(":")
            if separator and _is_number(ledger_id) and _is_number(entry_id):
                return int(ledger_id), int(entry_id)
            # Only the first property of the name counts, as upstream; a second one is not asked.
            return None
    return None


def _is_number(text: str) -> bool:
    """Whether ``text`` is a number of at most 63 bits in ASCII digits, which fits Java's long."""
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
    """Encode what precedes ``body`` in the payload for another cluster; changes ``metadata``.

    The body stays as it is stored, compressed or encrypted, and is not copied: it may be a large
    batch. ``schema_version`` is the version that the remote cluster gave to the message's schema,
    empty for none. The transaction of the message is left out: it belongs to the source cluster,
    and has ended when its messages are replicated.
    """
    # Brokers do not replicate a message with this field any further, or clusters that replicate to
    # each other would send it in circles.
    metadata.replicated_from = source
    metadata.ClearField("txnid_least_bits")
    metadata.ClearField("txnid_most_bits")
    if schema_version:
        metadata.schema_version = schema_version
    else:
        metadata.ClearField("schema_version")
    # Readers take the first property of this name. One that a client has set would pretend another
    # position, so it is removed.
    kept = [each for each in metadata.properties if each.key != SOURCE_POSITION_PROPERTY]
    if len(kept) < len(metadata.properties):
        pairs = [(each.key, each.value) for each in kept]
        del metadata.properties[:]
        for key, value in pairs:
            metadata.properties.add(key=key, value=value)
    ledger_id, entry_id = position
    metadata.properties.add(key=SOURCE_POSITION_PROPERTY, value=f"{ledger_id}:{entry_id}")
    return encode_front(metadata, body)
