"""The options of producers and of messages, with their defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from geminga._channels.producer_channel import ProducerChannelOptions
from geminga.compression import CompressionName, compressor
from geminga.crypto.encryption import Encryption
from geminga.producers.outgoing.attributes import MessageAttributes
from geminga.producers.outgoing.batches import Batching
from geminga.producers.outgoing.routing import HashName, Router, RouterName
from geminga.schemas.schema import SchemaInfo, proto_of
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.messages.integers import INT64_MAX

AccessModeName = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]


class EntryProducerOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.entry_producer`` besides topic and schema.
    ``ProducerOptions`` explains all of them.

    They are ``name``, ``properties``, ``access_mode``, ``initial_subscription``, ``compression``,
    ``encryption``, ``send_timeout_s``, ``pending_messages_max`` and ``close_timeout_s``.
    """

    name: str | None
    properties: Mapping[str, str] | None
    access_mode: AccessMode | AccessModeName
    initial_subscription: str | None
    compression: CompressionName
    encryption: Encryption | None
    send_timeout_s: float | None
    pending_messages_max: int
    close_timeout_s: float


class ProducerOptions(EntryProducerOptions, total=False):
    """The keyword arguments of ``Client.producer`` besides topic and schema.

    - ``name``: the producer's name, by which a topic that deduplicates knows its messages; by
      default the broker chooses one.
    - ``properties``: what brokers show of the producer.
    - ``access_mode``: whether others may publish to the topic at the same time. ``"shared"`` is the
      default; ``"exclusive"`` fails where there is another producer, ``"wait_for_exclusive"`` waits
      until there is none, ``"exclusive_with_fencing"`` ends the others.
    - ``initial_subscription``: a subscription that the topic gets if the producer creates it.
    - ``initial_sequence_id``: one less than that of the first message; by default the last one that
      the broker knows of this name.
    - ``batching``: when batches leave; with ``None`` each message leaves alone.
    - ``compression``: ``"none"``, ``"lz4"``, ``"zlib"``, ``"zstd"`` or ``"snappy"``; all but zlib
      need ``pip install 'geminga[compression]'``. Payloads that it does not make smaller stay as
      they are.
    - ``encryption``: the keys that payloads are encrypted for; needs
      ``pip install 'geminga[encryption]'``.
    - ``chunking``: whether messages larger than the broker takes leave in chunks, which consumers
      put together; by default they are refused.
    - ``router``: how messages without a key are spread over partitions. ``"round_robin"``, the
      default, gives each partition a batch in turn, ``"single"`` sends all to one. A function (a
      ``Router``) is called for every message, with a key or without.
    - ``hashing``: how a key chooses its partition: ``"java_string"``, the default as in upstream's
      Java client, ``"murmur3"``, or ``"boost"``, which upstream's C++ client has by default and its
      Python client always. All producers of a topic should agree.
    - ``lazy_start_partitioned_producers``: whether only one partition's broker is asked to accept
      the producer at first, and each other one with the first message that goes there, which waits
      for it. Publishing to few of many partitions then needs few connections. Producers with an
      access mode other than ``"shared"`` are accepted for all partitions at once in any case.
    - ``partitions_refresh_s``: how often the client asks for new partitions; 60 seconds by default.
    - ``send_timeout_s``: after so many seconds a message without a receipt fails, though it may be
      stored all the same, and so does one that still waits because too many are pending; 30 by
      default, ``None`` for never.
    - ``pending_messages_max``: how many messages may be without a receipt, 50,000 by default. Their
      bytes are bounded for all producers of a client: ``memory_limit_bytes`` of ``connect``.
    - ``close_timeout_s``: how many seconds closing waits for receipts, and then for the broker; 5
      by default.
    """

    initial_sequence_id: int | None
    batching: Batching | None
    chunking: bool
    router: Router | RouterName
    hashing: HashName
    lazy_start_partitioned_producers: bool
    partitions_refresh_s: float


@dataclass(frozen=True, slots=True)
class ProducerSettings(ProducerChannelOptions):
    """``ProducerOptions`` with the defaults of those that were not given, and the schema."""

    initial_sequence_id: int | None = None
    batching: Batching | None = field(default_factory=Batching)
    compression: CompressionName = "none"
    encryption: Encryption | None = None
    chunking: bool = False
    router: Router | RouterName = "round_robin"
    hashing: HashName = "java_string"
    lazy_start_partitioned_producers: bool = False
    partitions_refresh_s: float = 60.0  # as upstream's clients

    # A tenth of a second at half a million messages a second, which is more than a broker takes.
    pending_messages_max: int = 50_000

    def __post_init__(self) -> None:
        # What would fail with the first message fails here, where it was written.
        compressor(self.compression)  # raises for an unknown name, or a missing package
        # Callers without types pass True or False, as to the official client.
        if self.batching is not None and not hasattr(self.batching, "messages_max"):
            raise TypeError(f"batching must be a Batching or None, not {self.batching!r}")
        if self.pending_messages_max < 1:
            raise ValueError(
                f"pending_messages_max must be at least 1, not {self.pending_messages_max}"
            )
        if self.send_timeout_s is not None and self.send_timeout_s <= 0:
            raise ValueError("send_timeout_s must be None or more than 0")
        if self.partitions_refresh_s <= 0:
            raise ValueError("partitions_refresh_s must be more than 0")

    @classmethod
    def of(cls, options: EntryProducerOptions, info: SchemaInfo | None) -> ProducerSettings:
        """The settings for these keyword arguments and a schema.

        Raises ``ValueError``, ``TypeError`` or ``MissingExtra``.
        """
        # A copy: the caller may use the same options for another producer.
        named = dict(options)
        # Users write words, PRODUCER has numbers.
        mode = options.get("access_mode")
        if isinstance(mode, str):
            if mode.upper() not in AccessMode.__members__:
                modes = ", ".join(AccessMode.__members__).lower()
                raise ValueError(f"{mode!r} is no access mode: {modes}")
            named["access_mode"] = AccessMode[mode.upper()]
        # PRODUCER says it, since a namespace may refuse producers that do not encrypt.
        named["is_encrypted"] = options.get("encryption") is not None
        if info is not None:
            named["schema"] = proto_of(info)
        return cls(**named)  # type: ignore[arg-type]  # the TypedDict has the types of the fields


class MessageOptions(TypedDict, total=False):
    """What can be said of a message besides its value: the keyword arguments of ``Producer.send``
    and ``Producer.send_nowait``.

    - ``key``: chooses the partition, and the consumer of a Key_Shared subscription; compaction
      keeps the newest message of each key. Text, or bytes.
    - ``ordering_key``: chooses the consumer of a Key_Shared subscription instead of the key.
    - ``properties``: texts by their names, for the program that receives the message.
    - ``event_time``: when the event happened that the message is about.
    - ``sequence_id``: the number by which a topic that deduplicates knows the message; it must be
      higher than that of the message before.
    - ``deliver_at``, ``deliver_after``: Shared and Key_Shared subscriptions do not deliver the
      message before that time. Such a message leaves without a batch.
    - ``replicate_to``: the clusters to which the message is replicated, instead of all; an empty
      list means none. Such a message leaves without a batch.

    A time is a ``datetime`` (one without a time zone is local time) or a number of milliseconds
    since 1970-01-01 UTC, a duration is a ``timedelta`` or a number of seconds.
    """

    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time: datetime | int | None
    sequence_id: int | None
    deliver_at: datetime | int | None
    deliver_after: timedelta | float | None
    replicate_to: Sequence[str] | None


NOTHING = (None,) * 6
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
    """The attributes of a message with these ``MessageOptions``, if it has any, and its sequence id
    if the user chose one. ``now_ms`` is the current time, in milliseconds since 1970.

    Raises ``ValueError`` for both of ``deliver_at`` and ``deliver_after``, and for a sequence id
    that is out of range.
    """
    if sequence_id is not None and not 0 <= sequence_id <= INT64_MAX:
        raise ValueError(f"a sequence id must be from 0 to {INT64_MAX}, not {sequence_id}")
    deliver_at_ms = None if deliver_at is None else _ms_since_1970(deliver_at)
    if deliver_after is not None:
        if deliver_at is not None:
            raise ValueError("a message has either deliver_at or deliver_after")
        if isinstance(deliver_after, timedelta):
            deliver_after = deliver_after.total_seconds()
        # From the call on, and not from when the message leaves.
        deliver_at_ms = now_ms + round(deliver_after * 1000)
    event_time_ms = None if event_time is None else _ms_since_1970(event_time)
    # A copy: a message that leaves alone has its properties encoded only when it leaves, and its
    # user may change the mapping before that.
    copied = None if properties is None else dict(properties)
    # In the order of the fields of ``MessageAttributes``.
    given = (key, ordering_key, copied, event_time_ms, deliver_at_ms, replicate_to)
    return (None if given == NOTHING else MessageAttributes(*given)), sequence_id


def _ms_since_1970(time: datetime | int) -> int:
    """A time as messages carry it; a ``datetime`` without a time zone is local time."""
    if isinstance(time, datetime):
        # Whole milliseconds by division of integers: ``timestamp()`` is a float, which rounds.
        return (time.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
    return time
