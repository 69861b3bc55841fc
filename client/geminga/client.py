"""The client: opens producers and consumers, and closes all of them with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, Self, TypeVar, Unpack, overload

from geminga._channels.registry import Access, Channels, ClientOptions
from geminga._transport.connection import ConnectionOptions
from geminga._transport.lookup import TopicsMode
from geminga.authentication import Authentication, MutualTls
from geminga.consumers.consumer import Consumer
from geminga.consumers.dead_letters import LetterTopic
from geminga.consumers.entry_reader import EntryReader, ReadAhead
from geminga.consumers.factory import ConsumerFactory, Topics
from geminga.consumers.options import (
    ConsumerOptions,
    ConsumerSettings,
    ReaderOptions,
    TableViewOptions,
)
from geminga.consumers.reader import Reader
from geminga.consumers.table_view import TableView
from geminga.errors import TopicNotFound
from geminga.lifecycle import AsyncClosable, Opening
from geminga.message_ids import EARLIEST, LOG_START, LogPosition, MessageId
from geminga.producers.entry_producer import EntryProducer
from geminga.producers.options import EntryProducerOptions, ProducerOptions, ProducerSettings
from geminga.producers.producer import Producer
from geminga.producers.send_window import MEMORY_LIMIT_BYTES, MemoryLimit
from geminga.schemas.auto import AutoProduceSchema
from geminga.schemas.schema import BytesSchema, Schema, SchemaInfo, checked, info_of
from geminga.tls import Tls
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.network import AsyncioNetwork, Network

ValueT = TypeVar("ValueT")

# What ``connect`` has as defaults.
DEFAULTS = ClientOptions()
CONNECTION = DEFAULTS.connection


def connect(
    service_url: str,
    *,
    tls: Tls | None = None,
    authentication: Authentication | None = None,
    listener_name: str | None = None,
    connect_timeout_s: float = CONNECTION.connect_timeout_s,
    operation_timeout_s: float = CONNECTION.operation_timeout_s,
    ping_interval_s: float = CONNECTION.ping_interval_s,
    reconnect_first_s: float = DEFAULTS.reconnect_first_s,
    reconnect_limit_s: float = DEFAULTS.reconnect_limit_s,
    reconnect_timeout_s: float | None = DEFAULTS.reconnect_timeout_s,
    lookup_redirects_max: int = DEFAULTS.lookup_redirects_max,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    network: Network | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> Opening[Client]:
    """Make a client of the cluster at ``service_url``.

    `async with connect("pulsar://localhost:6650") as client:` closes it at the end of the block;
    `client = await connect(...)` leaves that to ``client.close()``. Opening a client does not yet
    connect to a broker.

    - ``service_url``: ``pulsar://host:port``, with more brokers after commas, of which any will do;
      ``pulsar+ssl://host:port`` with TLS. ``http://host:port`` and ``https://host:port`` name the
      web services of brokers, and are used for lookups.
    - ``tls``: which certificates are trusted, and the client's own; by default the system's.
    - ``authentication``: how the client shows who it is: ``Token``, ``OAuth2``, ``Basic``,
      ``MutualTls``, or a method of your own.
    - ``listener_name``: which of the addresses that brokers advertise the client connects to.
    - ``connect_timeout_s``: for a connection with its handshake.
    - ``operation_timeout_s``: for a request and its answer, and for opening a producer or consumer.
    - ``ping_interval_s``: the connection to a broker that is silent for so long after a ping is
      closed.
    - ``reconnect_first_s``, ``reconnect_limit_s``: the delay before a producer or consumer that
      lost its broker attaches again; it doubles with each failed attempt, from the first up to the
      limit.
    - ``reconnect_timeout_s``: a producer or consumer that has tried for so long ends with
      ``NotConnected`` when its next attempt fails; by default it never gives up.
    - ``lookup_redirects_max``: how many brokers in a row a lookup follows; clusters need three.
    - ``memory_limit_bytes``: how many bytes of messages without a receipt all producers together
      hold.
    - ``network``, ``clock``, ``random``: for tests and simulations.

    Raises ``InvalidServiceUrl``, and ``ValueError`` or ``TypeError`` for options that are out of
    range or contradict each other.
    """
    # Before anything is opened: what cannot work is an error here, and not at the first connection.
    if isinstance(authentication, MutualTls) and (tls is None or tls.certificate_file is None):
        raise ValueError("MutualTls() needs tls=Tls(certificate_file=...), which says who you are")
    # Callers without types pass a token as text, or a class instead of an instance.
    if authentication is not None and not hasattr(authentication, "exchange"):
        raise TypeError("authentication is a method, such as Token(...), MutualTls() or Basic(...)")
    # With 0 a client would give up at once, or ask without a pause.
    more_than_0 = {
        "connect_timeout_s": connect_timeout_s,
        "operation_timeout_s": operation_timeout_s,
        "ping_interval_s": ping_interval_s,
        "reconnect_first_s": reconnect_first_s,
        "reconnect_limit_s": reconnect_limit_s,
        "lookup_redirects_max": lookup_redirects_max,
        "memory_limit_bytes": memory_limit_bytes,
    }
    for name, number in more_than_0.items():
        if number <= 0:
            raise ValueError(f"{name} must be more than 0, not {number}")
    if reconnect_timeout_s is not None and reconnect_timeout_s <= 0:
        raise ValueError("reconnect_timeout_s must be None or more than 0")
    # ``replicates`` keeps its default: only the broker's replicator is one, which makes
    # ``Channels`` of its own.
    connection = ConnectionOptions(connect_timeout_s, ping_interval_s, operation_timeout_s)
    # Makes objects alone: it opens nothing, and may be called outside of a loop.
    channels = Channels(
        service_url,
        ClientOptions(
            connection,
            reconnect_first_s,
            reconnect_limit_s,
            reconnect_timeout_s,
            lookup_redirects_max,
        ),
        network=network or AsyncioNetwork(),
        random=random or Random(),  # noqa: S311  # jitter and names, no secrets
        access=Access(tls, authentication, listener_name),
    )
    # Nothing is connected yet: the first lookup does that.
    client = Client(channels, MemoryLimit(memory_limit_bytes), clock or SystemClock())
    return Opening(client.__aenter__())


# What is made here belongs to ``Channels``, not to this object: each producer, consumer and reader
# enters its channels there, or itself (``owners``). So closing has one place, also for what is
# still being opened.
class Client(AsyncClosable):
    """The way into a Pulsar cluster, made by ``connect``.

    Its producers and consumers share its connections, one to each broker, and are closed with it.
    A client belongs to the event loop that opened it; ``geminga.sync.Client`` may be used by
    several threads.
    """

    def __init__(self, channels: Channels, memory: MemoryLimit, clock: Clock) -> None:
        self._channels = channels
        # Shared by all producers.
        self._memory = memory
        self._clock = clock
        self._consumers = ConsumerFactory(channels, clock, self._open_letter_producer)

    @overload
    def producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerOptions]
    ) -> Opening[Producer[bytes]]: ...

    @overload
    def producer(
        self, topic: str, *, schema: Schema[ValueT], **options: Unpack[ProducerOptions]
    ) -> Opening[Producer[ValueT]]: ...

    def producer(
        self, topic: str, *, schema: Schema[Any] | None = None, **options: Unpack[ProducerOptions]
    ) -> Opening[Producer[Any]]:
        """Open a producer on ``topic``: `async with client.producer("orders") as producer:`, or
        `producer = await client.producer("orders")`.

        ``topic`` is a whole name such as ``persistent://tenant/namespace/orders``, or a short one
        of ``public/default``. ``schema`` turns the values that are sent into bytes; without one,
        values are bytes. ``ProducerOptions`` explains the options.

        Raises ``ValueError`` or ``TypeError`` for an option or a schema that cannot be used,
        ``MissingExtra`` for one that needs more packages. Opening waits until a broker has accepted
        the producer, and raises ``InvalidTopicName``, or the ``ClientError`` for which none did.
        """
        # Here, and not in the coroutine: wrong options are errors of the call, also if it is never
        # awaited.
        encoder = checked(schema) or BytesSchema()
        settings = ProducerSettings.of(options, encoder.schema_info)
        return Opening(self._open_producer(topic, encoder, settings))

    async def _open_producer(
        self, topic: str, schema: Schema[ValueT], settings: ProducerSettings
    ) -> Producer[ValueT]:
        name = TopicName.parse(topic)
        kind: object = schema
        if isinstance(kind, AutoProduceSchema):
            # It stands for the topic's newest schema, if the topic has one.
            try:
                # So that the broker checks nothing new, and messages carry the version of this
                # schema.
                settings = replace(settings, schema=await self._channels.schema(name))
            except TopicNotFound:
                settings = replace(settings, schema=None)
        producer = Producer(
            self._channels, name, schema, settings, memory=self._memory, clock=self._clock
        )
        await producer.open()
        return producer

    def entry_producer(
        self,
        topic: str,
        *,
        schema: SchemaInfo | None = None,
        **options: Unpack[EntryProducerOptions],
    ) -> Opening[EntryProducer]:
        """Open a producer of entries that your program cuts and numbers itself: `async with
        client.entry_producer("orders-partition-0", name="import-7") as producer:`.

        It is for programs that must store each message exactly once, also when they run again:
        others want ``producer``. ``topic`` has no partitions, or is one partition of another.
        Values are bytes already; ``schema`` says what they are. ``ProducerOptions`` explains the
        options.

        Opening raises what opening a ``producer`` raises, ``ProducerBusy`` where another producer
        has the name, and ``ValueError`` for a topic that has partitions.
        """
        # Without batching of its own: the program alone says where an entry begins and ends.
        settings = replace(ProducerSettings.of(options, schema), batching=None)
        return Opening(self._open_entry_producer(topic, settings))

    async def _open_entry_producer(self, topic: str, settings: ProducerSettings) -> EntryProducer:
        name = TopicName.parse(topic)
        # Sequence ids are compared within one log, and each partition has its own.
        if name.partition_index < 0 and (partitions := await self._channels.partitions(name)):
            raise ValueError(f"{name} has {partitions} partitions: name one of them")
        producer = EntryProducer(
            self._channels, name, settings, memory=self._memory, clock=self._clock
        )
        await producer.open()
        return producer

    @overload
    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Opening[Consumer[bytes]]: ...

    @overload
    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: Schema[ValueT],
        **options: Unpack[ConsumerOptions],
    ) -> Opening[Consumer[ValueT]]: ...

    def consumer(
        self,
        topics: Topics,
        subscription: str,
        *,
        schema: Schema[Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Opening[Consumer[Any]]:
        """Open a consumer of ``topics`` for ``subscription``: `async with client.consumer("orders",
        "billing") as consumer:`, or `consumer = await client.consumer("orders", "billing")`.

        ``topics`` is one name, several names, or a compiled regular expression. An expression has
        to match the whole name of a topic, as ``tenant/namespace/...`` or within
        ``public/default``; it also finds topics that are created later. A partitioned topic stands
        for all its partitions, those that it gets later included. Topics and partitions that are
        found later are consumed from their first message on.

        ``schema`` makes values of the bytes of messages; without one, values are bytes.
        ``ConsumerOptions`` explains the options.

        Raises ``ValueError`` or ``TypeError`` for an option or a schema that cannot be used.
        Opening waits until brokers have accepted the consumer for every topic, and raises
        ``InvalidTopicName``, or the ``ClientError`` for which one did not.
        """
        # Brokers refuse it too, but only once they are asked.
        if not subscription:
            raise ValueError("a consumer needs a subscription with a name")
        settings = ConsumerSettings.of(options)
        return Opening(self._consumers.consumer(topics, subscription, settings, checked(schema)))

    @overload
    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: None = None,
        **options: Unpack[ReaderOptions],
    ) -> Opening[Reader[bytes]]: ...

    @overload
    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: Schema[ValueT],
        **options: Unpack[ReaderOptions],
    ) -> Opening[Reader[ValueT]]: ...

    def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime = EARLIEST,
        *,
        start_inclusive: bool = False,
        schema: Schema[Any] | None = None,
        **options: Unpack[ReaderOptions],
    ) -> Opening[Reader[Any]]:
        """Open a reader of ``topics`` from ``start`` on: `async with client.reader("orders") as
        reader:`, or `reader = await client.reader("orders")`.

        ``start`` is ``EARLIEST``, ``LATEST``, a publish time, or the id of a message: the first
        message read is the one behind it, or with ``start_inclusive`` that message itself. An id
        is possible only for one topic without partitions. ``ReaderOptions`` explains the options.

        Raises ``ValueError`` or ``TypeError`` for an option or a schema that cannot be used.
        Opening waits until brokers have accepted the reader for every topic, and raises
        ``InvalidTopicName``, or the ``ClientError`` for which one did not.
        """
        settings = ConsumerSettings.of(options)
        return Opening(
            self._consumers.reader(
                topics, start, settings, checked(schema), is_start_inclusive=start_inclusive
            )
        )

    @overload
    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: None = None,
        **options: Unpack[TableViewOptions],
    ) -> Opening[TableView[bytes]]: ...

    @overload
    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: Schema[ValueT],
        **options: Unpack[TableViewOptions],
    ) -> Opening[TableView[ValueT]]: ...

    def table_view(
        self,
        topics: str | Sequence[str],
        *,
        schema: Schema[Any] | None = None,
        **options: Unpack[TableViewOptions],
    ) -> Opening[TableView[Any]]:
        """Open a mapping of the keys of ``topics`` to their newest values, which is kept up to
        date: `async with client.table_view("prices") as prices:`, or
        `prices = await client.table_view("prices")`.

        ``TableViewOptions`` explains the options. Raises ``ValueError`` or ``TypeError`` for an
        option or a schema that cannot be used. Opening reads everything that was published before,
        and raises ``InvalidTopicName``, or ``ClientError``.
        """
        settings = ConsumerSettings.of(options)
        return Opening(self._consumers.table_view(topics, settings, checked(schema)))

    def entries(
        self,
        topic: str,
        start: LogPosition = LOG_START,
        end: LogPosition | None = None,
        *,
        read_ahead_messages: int = 10_000,
        read_ahead_bytes: int = 16 * 1024 * 1024,
        timeout_s: float = 60.0,
    ) -> Opening[EntryReader]:
        """Open a reader of the stored entries of ``topic`` from ``start`` to ``end``, which is not
        included: `async with client.entries("orders") as entries:`, or
        `entries = await client.entries("orders")`.

        It is for programs that move or analyse large parts of a log: others want a ``reader``. The
        topic has no partitions, or is one partition of another. Without an ``end`` the range ends
        where the topic ends when the reader is opened; an ``end`` behind that means the same. Up to
        ``read_ahead_messages`` and about ``read_ahead_bytes`` are fetched ahead. A read that gets
        nothing for ``timeout_s`` seconds raises ``TimeoutError``: a range never ends early.

        Raises ``ValueError`` for limits that are not above 0. Opening waits until a broker has
        accepted the reader, and raises ``InvalidTopicName``, ``ValueError`` for a topic with
        partitions, or the ``ClientError`` for which none did.
        """
        # Limits are checked in the call, names when the opening is awaited.
        read_ahead = ReadAhead(read_ahead_messages, read_ahead_bytes, timeout_s)
        return Opening(self._open_entries(topic, start, end, read_ahead))

    async def _open_entries(
        self, topic: str, start: LogPosition, end: LogPosition | None, read_ahead: ReadAhead
    ) -> EntryReader:
        name = TopicName.parse(topic)
        # Positions of one partition mean nothing in another.
        if name.partition_index < 0 and (count := await self._channels.partitions(name)):
            raise ValueError(f"{name} has {count} partitions: read each of them by its name")
        reader = EntryReader(self._channels, name, start, end, read_ahead)
        await reader.open()
        return reader

    async def schema(self, topic: str, version: bytes | None = None) -> SchemaInfo | None:
        """The newest schema of ``topic``, or its ``version``; ``None`` where there is none.

        ``version`` is that of a message (``Message.schema_version``). Raises ``InvalidTopicName``,
        ``ClientError``, or ``ValueError`` for a schema of an unknown type.
        """
        try:
            return info_of(await self._channels.schema(TopicName.parse(topic), version))
        except TopicNotFound:
            return None

    async def _open_letter_producer(self, topic: LetterTopic) -> Producer[bytes]:
        """Open what publishes a consumer's letters to one topic."""
        # The subscription first: a letter that is published before it would not be kept for it.
        if topic.subscription is not None:
            # Shared: consumers of the letters may be connected already, which an exclusive one
            # would not join.
            async with self.consumer(
                topic.name, topic.subscription, type="shared", initial_position="earliest"
            ):
                pass  # closing the consumer leaves its subscription
        schema = BytesSchema(topic.schema)
        return await self.producer(topic.name, schema=schema, **topic.producer)

    async def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned.

        A topic that does not exist may be created by it, as its namespace says. Raises
        ``InvalidTopicName`` or ``ClientError``.
        """
        return await self._channels.partitions(TopicName.parse(topic))

    async def topics(self, namespace: str, mode: TopicsMode = "persistent") -> list[str]:
        """The whole names of the topics of ``namespace`` (``tenant/namespace``), sorted, with each
        partition by itself.

        ``mode`` is ``"persistent"``, ``"non-persistent"`` or ``"all"``. Raises ``InvalidTopicName``
        or ``ClientError``.
        """
        name = str(NamespaceName.parse(namespace))
        # Without the hash of a list that is known already, a broker always sends the names.
        found, _ = await self._channels.lookup.topics(name, mode, "")
        return sorted(found or [])

    async def close(self) -> None:
        """Close all producers and consumers, then the connections. Closing twice is harmless."""
        # What is open is not listed here: channels and their owners enter themselves there.
        await self._channels.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        await self._channels.__aenter__()
        return self
