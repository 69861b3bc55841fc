"""What users choose of a producer, and say of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from geminga._channels.producer_channel import ProducerChannelOptions
from geminga.compression import CompressionName
from geminga.producers.attributes import MessageAttributes
from geminga.producers.batches import Batching
from geminga_protocol.pulsar.enums import AccessMode


class ProducerOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.producer`` besides topic and schema.

    ``name``: made by the broker if there is none. ``properties``: shown in the topic's statistics.
    ``access_mode``: whether other producers may publish to the topic at the same time.
    ``initial_sequence_id``: one less than the first message's; without it the broker's last one.
    ``batching``: when batches leave; ``None``: each message leaves alone.
    ``compression``: ``"lz4"``, ``"zlib"``, ``"zstd"`` or ``"snappy"``; all but ``"zlib"`` need
    ``pip install 'geminga[compression]'``. What does not become smaller stays as it is.
    ``send_timeout_s``: a message without receipt after so long fails (``None``: never), which does
    not mean that it will not be stored; a message that finds no room fails after so long, too.
    ``pending_messages_max``: how many messages may wait for receipts; what they hold in bytes is
    bounded for all producers of a client by ``connect``'s ``memory_limit_bytes``.
    ``close_timeout_s``: how long closing waits for receipts, and then for the broker.
    """

    name: str | None
    properties: Mapping[str, str] | None
    access_mode: AccessMode
    initial_sequence_id: int | None
    batching: Batching | None
    compression: CompressionName
    send_timeout_s: float | None
    pending_messages_max: int
    close_timeout_s: float


@dataclass(frozen=True, slots=True)
class ProducerSettings(ProducerChannelOptions):
    """``ProducerOptions`` with their defaults."""

    initial_sequence_id: int | None = None
    batching: Batching | None = field(default_factory=Batching)
    compression: CompressionName = "none"
    # A tenth of a second at half a million messages a second, more than a broker keeps waiting.
    pending_messages_max: int = 50_000


class MessageOptions(TypedDict, total=False):
    """What can be said of a message besides its value.

    ``key``: routes the message to a partition, and to a consumer of a Key_Shared subscription; also
    what compaction keeps the newest message of. ``ordering_key``: the same for Key_Shared alone,
    before the key. ``properties``: for whatever else receives it. ``event_time``: when it happened.
    ``sequence_id``: what a topic that deduplicates knows the message by; it must go up.
    ``deliver_at``, ``deliver_after``: before that time, Shared and Key_Shared subscriptions do not
    deliver it. ``replicate_to``: the clusters it is replicated to instead of all; an empty list
    means none.

    A time is a ``datetime`` or a number of milliseconds since 1970, a duration a ``timedelta`` or a
    number of seconds.
    """

    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time: datetime | int | None
    sequence_id: int | None
    deliver_at: datetime | int | None
    deliver_after: timedelta | float | None
    replicate_to: Sequence[str] | None


NO_ATTRIBUTES = MessageAttributes()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def attributes_of(
    now_ms: int,
    *,
    key: str | bytes | None = None,
    ordering_key: bytes | None = None,
    properties: Mapping[str, str] | None = None,
    event_time: datetime | int | None = None,
    deliver_at: datetime | int | None = None,
    deliver_after: timedelta | float | None = None,
    replicate_to: Sequence[str] | None = None,
    sequence_id: int | None = None,
) -> tuple[MessageAttributes | None, int | None]:
    """What a message's metadata says of it, if anything, and its sequence id if that is chosen.

    ``now_ms`` is the time it is sent, since 1970.

    Raises ``ValueError`` where ``deliver_at`` and ``deliver_after`` contradict each other.
    """
    deliver_at_ms = None if deliver_at is None else _ms_since_1970(deliver_at)
    if deliver_after is not None:
        if deliver_at is not None:
            raise ValueError("a message has either deliver_at or deliver_after")
        if isinstance(deliver_after, timedelta):
            deliver_after = deliver_after.total_seconds()
        deliver_at_ms = now_ms + round(deliver_after * 1000)
    event_time_ms = None if event_time is None else _ms_since_1970(event_time)
    attributes = MessageAttributes(
        key, ordering_key, properties, event_time_ms, deliver_at_ms, replicate_to
    )
    return (None if attributes == NO_ATTRIBUTES else attributes), sequence_id


def _ms_since_1970(time: datetime | int) -> int:
    """A time as messages carry it; a ``datetime`` without a time zone is one of this machine's."""
    if isinstance(time, int):
        return time
    return (time.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
