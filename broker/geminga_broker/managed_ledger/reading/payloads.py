"""What the broker wants to know of a stored payload: facts of its message metadata.

Read only where an entry comes from a bookie or somebody asks for a time; what was just published
brings its number of messages along.
"""

from __future__ import annotations

from geminga_broker.managed_ledger.positions import Entry
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.message_count import count_messages, count_usual
from geminga_protocol.pulsar.payload import (
    BROKER_ENTRY_START,
    parse_broker_entry,
    parse_metadata,
    skip_broker_entry,
)


def message_count(payload: bytes) -> int:
    """Messages in the entry for those who consume it; 0 for a marker, and for what nobody can read:
    clients would close their connections over it, again and again."""
    try:
        return count_usual(payload) or count_messages(payload)
    except WireError:
        return 0


def counted(entries: list[Entry]) -> list[Entry]:
    """Entries from a bookie with their messages counted, where there is nothing else to look at."""
    return [(entry_id, payload, count_usual(payload)) for entry_id, payload, _ in entries]


def without_broker_entry(payload: bytes) -> bytes:
    """The payload as its producer sent it; the whole for one that nobody can read."""
    if not payload.startswith(BROKER_ENTRY_START):
        return payload
    try:
        return payload[skip_broker_entry(payload, 0, len(payload)) :]
    except WireError:
        return payload


def batch_size(payload: bytes) -> int | None:
    """Messages in the batch, at least 1; None for an entry that is a single message."""
    try:
        metadata = parse_metadata(payload)
    except WireError:
        return None
    if metadata.HasField("num_messages_in_batch"):
        return max(1, metadata.num_messages_in_batch)
    return None


def publish_time_ms(payload: bytes) -> int:
    """When the producer sent it, in milliseconds since 1970; 0 for one that nobody can read."""
    try:
        return parse_metadata(payload).publish_time
    except WireError:
        return 0


def is_encrypted(payload: bytes) -> bool:
    """Whether its producer has encrypted it, as it says; False for one that nobody can read."""
    try:
        return bool(parse_metadata(payload).encryption_keys)
    except WireError:
        return False


def entry_time_ms(payload: bytes) -> int:
    """When the broker took it, where it has noted that; when the producer sent it otherwise."""
    try:
        noted = parse_broker_entry(payload, 0, len(payload))
    except WireError:
        return 0
    if noted is not None and noted.HasField("broker_timestamp"):
        return noted.broker_timestamp
    return publish_time_ms(payload)
