"""Facts from the message metadata of a stored payload.

Parsing takes microseconds, so it is done only for entries that come from a bookie, or for the sake
of a time; what was just published brings its number of messages along. No function raises for a
payload that cannot be parsed: any producer can store one, and it must not stop the topic.
"""

from __future__ import annotations

from geminga_broker.managed_ledger.positions import Entry
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.message_count import count_messages, count_usual
from geminga_protocol.pulsar.messages.payload import (
    BROKER_ENTRY_START,
    parse_broker_entry,
    parse_metadata,
    skip_broker_entry,
)


def message_count(payload: bytes) -> int:
    """Messages in the entry that consumers are sent; 0 for a marker, and for a payload that cannot
    be parsed: clients that were sent one would close their connections, again and again."""
    # The quick way first: it knows the usual layout only, and gives 0 for any other.
    try:
        return count_usual(payload) or count_messages(payload)
    except WireError:
        return 0


def counted(entries: list[Entry]) -> list[Entry]:
    """Entries from a bookie with their messages counted where that is quick; 0 means "parse it"."""
    return [(entry_id, payload, count_usual(payload)) for entry_id, payload, _ in entries]


def without_broker_entry(payload: bytes) -> bytes:
    """The payload as its producer sent it; unchanged where it cannot be parsed."""
    # Others are returned as they are: a slice would copy megabytes.
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
    # A batch of one message is a batch to clients: its message has the batch index 0.
    if metadata.HasField("num_messages_in_batch"):
        # A producer may write any number there, 0 and less as well.
        return max(1, metadata.num_messages_in_batch)
    return None


def publish_time_ms(payload: bytes) -> int:
    """When the producer sent it (Unix time in ms); 0 where it cannot be parsed."""
    try:
        return parse_metadata(payload).publish_time
    except WireError:
        return 0


def is_encrypted(payload: bytes) -> bool:
    """Whether its metadata says that it is encrypted; False where it cannot be parsed."""
    try:
        return bool(parse_metadata(payload).encryption_keys)
    except WireError:
        return False


def entry_time_ms(payload: bytes) -> int:
    """When the broker took it, where that was stored with it; else when the producer sent it."""
    try:
        noted = parse_broker_entry(payload, 0, len(payload))
    except WireError:
        return 0
    # The clock of a producer may be wrong by years: the broker's is preferred.
    if noted is not None and noted.HasField("broker_timestamp"):
        return noted.broker_timestamp
    return publish_time_ms(payload)
