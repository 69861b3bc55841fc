"""What users choose of a producer, and say of a message."""

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
from geminga_protocol.pulsar.integers import INT64_MAX

AccessModeName = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]


class EntryProducerOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.entry_producer`` besides topic and schema, all explained in
    ``ProducerOptions``.

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

    - ``name``: made by the broker by default.
    - ``properties``: what brokers show of the producer.
    - ``access_mode``: whether others may publish to the topic at the same time. ``"shared"``, the
      default; ``"exclusive"`` fails where there is another producer, ``"wait_for_exclusive"`` waits
      until there is none, ``"exclusive_with_fencing"`` ends the others.
    - ``initial_subscription``: a subscription that the topic gets if the producer makes it.
    - ``initial_sequence_id``: one less than the first message's; by default the last one that the
      broker knows of this name.
    - ``batching``: when batches leave; ``None``: each message leaves alone.
    - ``compression``: ``"none"``, ``"lz4"``, ``"zlib"``, ``"zstd"`` or ``"snappy"``; all but zlib
      need ``pip install 'geminga[compression]'``. What becomes no smaller stays as it is.
    - ``encryption``: for whom payloads are encrypted; needs ``pip install 'geminga[encryption]'``.
    - ``chunking``: messages larger than the broker takes leave in chunks, which consumers put
      together; by default they are refused.
    - ``router``: how messages without a key are spread over partitions. ``"round_robin"``, the
      default, gives each partition a batch in turn, ``"single"`` one partition all. A function gets
      a ``RoutedMessage``, with a key or without, and the number of partitions.
    - ``hashing``: how a key chooses its partition: ``"java_string"``, the default as in upstream's
      Java client, ``"murmur3"``, or ``"boost"``, which upstream's C++ client has by default and its
      Python client always. All producers of a topic should agree.
    - ``lazy_start_partitioned_producers``: of a partitioned topic only one partition's broker is
      asked at first, and each other's with the first message that goes there, which waits for it.
      What is published to few of many partitions needs few connections then. Producers with an
      access mode other than ``"shared"`` are accepted for all partitions at once in any case.
    - ``partitions_refresh_s``: how often is asked for new partitions; 60 by default.
    - ``send_timeout_s``: a message without receipt after so long fails, 30 by default (``None``:
      never); it may be stored all the same. A message that finds no room fails after so long, too.
    - ``pending_messages_max``: how many messages may wait for receipts, 50,000 by default. Their
      bytes are bounded for all producers of a client: ``memory_limit_bytes`` of ``connect``.
    - ``close_timeout_s``: how long closing waits for receipts, and then for the broker; 5 by
      default.
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
    """``ProducerOptions`` with their defaults, and what the producer's schema is."""

    initial_sequence_id: int | None = None
    batching: Batching | None = field(default_factory=Batching)
    compression: CompressionName = "none"
    encryption: Encryption | None = None
    chunking: bool = False
    router: Router | RouterName = "round_robin"
    hashing: HashName = "java_string"
    lazy_start_partitioned_producers: bool = False
    partitions_refresh_s: float = 60.0  # as upstream's clients

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for what cannot be."""
        compressor(self.compression)
        # Callers without types say True and False, as the official client does.
        if self.batching is not None and not hasattr(self.batching, "messages_max"):
            raise TypeError(f"batching is a Batching or None, and not {self.batching!r}")
        if self.pending_messages_max < 1:
            raise ValueError(f"pending_messages_max is 1 at least, not {self.pending_messages_max}")
        if self.send_timeout_s is not None and self.send_timeout_s <= 0:
            raise ValueError("send_timeout_s is None or more than 0")
        if self.partitions_refresh_s <= 0:
            raise ValueError("partitions_refresh_s is more than 0")

    @classmethod
    def of(cls, options: EntryProducerOptions, info: SchemaInfo | None) -> ProducerSettings:
        """The settings for these keyword arguments and a schema.

        Raises ``ValueError``, ``TypeError`` or ``MissingExtra``.
        """
        named = dict(options)
        mode = options.get("access_mode")
        if isinstance(mode, str):
            if mode.upper() not in AccessMode.__members__:
                modes = ", ".join(AccessMode.__members__).lower()
                raise ValueError(f"{mode!r} is no access mode: {modes}")
            named["access_mode"] = AccessMode[mode.upper()]
        named["is_encrypted"] = options.get("encryption") is not None
        if info is not None:
            named["schema"] = proto_of(info)
        return cls(**named)  # type: ignore[arg-type]  # the TypedDict has the types of the fields

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
    """What a message's metadata says of it, if anything, and its sequence id if that is chosen.

    ``now_ms`` is the time it is sent, since 1970.

    Raises ``ValueError`` where ``deliver_at`` and ``deliver_after`` contradict each other, and for
    a sequence id that is none.
    """
    if sequence_id is not None and not 0 <= sequence_id <= INT64_MAX:
        raise ValueError(f"a sequence id is from 0 to {INT64_MAX}, and not {sequence_id}")
    deliver_at_ms = None if deliver_at is None else _ms_since_1970(deliver_at)
    if deliver_after is not None:
        if deliver_at is not None:
            raise ValueError("a message has either deliver_at or deliver_after")
        if isinstance(deliver_after, timedelta):
            deliver_after = deliver_after.total_seconds()
        deliver_at_ms = now_ms + round(deliver_after * 1000)
    event_time_ms = None if event_time is None else _ms_since_1970(event_time)
    # A copy: the message may leave later, and alone only then has its properties encoded.
    said = None if properties is None else dict(properties)
    given = (key, ordering_key, said, event_time_ms, deliver_at_ms, replicate_to)
    return (None if given == NOTHING else MessageAttributes(*given)), sequence_id


def _ms_since_1970(time: datetime | int) -> int:
    """A time as messages carry it; a ``datetime`` without a time zone is one of this machine's."""
    if isinstance(time, datetime):
        return (time.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
    return time
