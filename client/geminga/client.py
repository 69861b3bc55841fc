"""The client: opens producers and consumers, and closes all of them with itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, Self, TypeVar, Unpack, overload

from geminga._channels.channel import Access, Channels, ClientOptions
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
from geminga.messages import Message
from geminga.producers.entry_producer import EntryProducer
from geminga.producers.options import EntryProducerOptions, ProducerOptions, ProducerSettings
from geminga.producers.producer import Producer
from geminga.producers.send_window import MEMORY_LIMIT_BYTES, MemoryLimit
from geminga.schemas.auto import AutoProduceSchema
from geminga.schemas.schema import BytesSchema, Schema, SchemaInfo, checked, info_of
from geminga.tls import Tls
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.network import AsyncioNetwork, Network

ValueT = TypeVar("ValueT")

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
    """A client of the cluster at ``service_url``: ``async with connect(url) as client``, or
    ``client = await connect(url)``.

    ``service_url`` is ``pulsar://host:port``, with more brokers after commas: any of them will do.
    ``pulsar+ssl://host:port`` secures connections with ``tls``: what is trusted, and the client's
    own certificate; without it, what the system trusts. ``authentication`` says who the client is:
    ``Token``, ``OAuth2``, ``Basic``, ``MutualTls``, or a method of your own. ``http://host:port``
    and ``https://host:port`` name the web services of brokers, which tell where topics are.
    ``listener_name`` chooses among the addresses that brokers advertise.
    A broker that is silent for ``ping_interval_s`` after a ping is given up. Between attempts to
    attach a producer or consumer again the client waits ``reconnect_first_s``, then twice as long
    each time, ``reconnect_limit_s`` at most. One that has tried for ``reconnect_timeout_s`` ends
    with ``NotConnected`` when its next attempt fails; by default it tries for as long as it takes.
    A lookup asks ``lookup_redirects_max`` brokers in a row at most, each named by the one before;
    brokers need three.
    All producers together hold up to ``memory_limit_bytes`` of messages that have no receipt yet.
    Opening connects to no broker yet.
    ``network``, ``clock`` and ``random`` are for tests and simulations.

    Raises ``InvalidServiceUrl``, and ``ValueError`` or ``TypeError`` for options that cannot be or
    that contradict each other.
    """
    if isinstance(authentication, MutualTls) and (tls is None or tls.certificate_file is None):
        raise ValueError("MutualTls() needs tls=Tls(certificate_file=...), which says who you are")
    if authentication is not None and not hasattr(authentication, "exchange"):
        raise TypeError("authentication is a method, such as Token(...), MutualTls() or Basic(...)")
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
            raise ValueError(f"{name} is more than 0, and not {number}")
    if reconnect_timeout_s is not None and reconnect_timeout_s <= 0:
        raise ValueError("reconnect_timeout_s is None or more than 0")
    connection = ConnectionOptions(connect_timeout_s, ping_interval_s, operation_timeout_s)
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
    client = Client(channels, MemoryLimit(memory_limit_bytes), clock or SystemClock())
    return Opening(_opened(client))


async def _opened(client: Client) -> Client:
    return await client.__aenter__()


class Client(AsyncClosable):
    """The way into a Pulsar cluster, made by ``connect``.

    All its producers and consumers share its connections: one to each broker.
    """

    def __init__(self, channels: Channels, memory: MemoryLimit, clock: Clock) -> None:
        self._channels = channels
        self._memory = memory
        self._clock = clock
        self._consumers = ConsumerFactory(channels, clock, self._open_box)

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
        """A producer on ``topic``: ``async with client.producer("orders") as producer``, or
        ``producer = await client.producer("orders")``.

        ``schema`` turns the values that are sent into bytes; without one, values are bytes. The
        options are explained in ``ProducerOptions``. Opening waits until a broker has accepted the
        producer, and raises ``InvalidTopicName``, or the ``ClientError`` for which none did. Raises
        ``ValueError`` for an option that cannot be, ``MissingExtra`` for one that needs more
        packages.
        """
        encoder = checked(schema) or BytesSchema()
        settings = ProducerSettings.of(options, encoder.schema_info)
        return Opening(self._open_producer(topic, encoder, settings))

    async def _open_producer(
        self, topic: str, schema: Schema[ValueT], settings: ProducerSettings
    ) -> Producer[ValueT]:
        name = TopicName.parse(topic)
        kind: object = schema
        if isinstance(kind, AutoProduceSchema):
            settings = replace(settings, schema=await self._schema_of(name))
        producer = Producer(
            self._channels, name, schema, settings, memory=self._memory, clock=self._clock
        )
        await producer.open()
        return producer

    async def _schema_of(self, topic: TopicName) -> api.Schema | None:
        """The topic's newest schema, ``None`` if it has none."""
        try:
            return await self._channels.schema(topic)
        except TopicNotFound:
            return None

    def entry_producer(
        self,
        topic: str,
        *,
        schema: SchemaInfo | None = None,
        **options: Unpack[EntryProducerOptions],
    ) -> Opening[EntryProducer]:
        """A producer of entries that its owner cuts and numbers: ``async with
        client.entry_producer("orders-partition-0", name="import-7") as producer``.

        ``topic`` has no partitions or is one. Values are bytes already; ``schema`` says what they
        are. The options are explained in ``ProducerOptions``. Opening raises as ``producer`` does,
        ``ProducerBusy`` where another producer has the name, and ``ValueError`` for a topic that
        has partitions.
        """
        settings = replace(ProducerSettings.of(options, schema), batching=None)
        return Opening(self._open_entry_producer(topic, settings))

    async def _open_entry_producer(self, topic: str, settings: ProducerSettings) -> EntryProducer:
        name = TopicName.parse(topic)
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
        """A consumer of ``topics`` for ``subscription``: ``async with client.consumer("orders",
        "billing") as consumer``, or ``consumer = await client.consumer("orders", "billing")``.

        ``topics`` is one name or several, or a compiled regular expression that names of topics
        match as a whole, ``tenant/namespace/...`` or within ``public/default``: also those that
        are made later. A partitioned topic stands for all its partitions, those it gets later
        included. What is found later is consumed from its first message on.

        ``schema`` makes values of the bytes of messages; without one, values are bytes. The options
        are explained in ``ConsumerOptions``. Opening waits until brokers have accepted the consumer
        for every topic, and raises ``InvalidTopicName``, or the ``ClientError`` for which one did
        not. Raises ``ValueError`` for an option that cannot be.
        """
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
        """A reader of ``topics`` from ``start`` on: ``async with client.reader("orders") as
        reader``, or ``reader = await client.reader("orders")``.

        ``start`` is a message (the first one read is the one behind it, or with
        ``start_inclusive`` that one), a publish time, ``EARLIEST`` or ``LATEST``; of several
        topics, and of partitions, one of the last three. The options are explained in
        ``ReaderOptions``. Opening waits until brokers have accepted the reader for every topic, and
        raises ``InvalidTopicName``, or the ``ClientError`` for which one did not. Raises
        ``ValueError`` for an option that cannot be.
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
        """The newest value of every key of ``topics``, kept up to date: ``async with
        client.table_view("prices") as prices``, or ``prices = await client.table_view("prices")``.

        The options are explained in ``TableViewOptions``. Opening reads all that was published
        until then, and raises ``InvalidTopicName``, or ``ClientError``. Raises ``ValueError`` for
        an option that cannot be.
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
        """The stored entries of ``topic`` from ``start`` to ``end``, which is not included:
        ``async with client.entries("orders") as entries``, or ``await client.entries("orders")``.

        For programs that move or analyse large parts of a log: others want a ``reader``. The topic
        has no partitions, or is one partition of another. Without an ``end`` the range ends where
        the topic ends when the reader is opened; an ``end`` that lies behind that means the same.
        Up to ``read_ahead_messages`` and about ``read_ahead_bytes`` are fetched ahead. A read that
        gets nothing for ``timeout_s`` fails, and no range ends short for that. Opening waits until
        a broker has accepted the reader, and raises ``InvalidTopicName``, or the ``ClientError``
        for which none did. Raises ``ValueError`` for limits that are not above 0, and for a topic
        with partitions.
        """
        read_ahead = ReadAhead(read_ahead_messages, read_ahead_bytes, timeout_s)
        return Opening(self._open_entries(topic, start, end, read_ahead))

    async def _open_entries(
        self, topic: str, start: LogPosition, end: LogPosition | None, read_ahead: ReadAhead
    ) -> EntryReader:
        name = TopicName.parse(topic)
        if name.partition_index < 0 and (count := await self._channels.partitions(name)):
            raise ValueError(f"{name} has {count} partitions: read each of them by its name")
        reader = EntryReader(self._channels, name, start, end, read_ahead)
        await reader.open()
        return reader

    async def schema(self, topic: str, version: bytes | None = None) -> SchemaInfo | None:
        """The newest schema of ``topic``, or that ``version`` of it; ``None`` where there is none.

        Raises ``InvalidTopicName``, ``ClientError``, or ``ValueError`` for a schema of a type that
        is not known here.
        """
        try:
            return info_of(await self._channels.schema(TopicName.parse(topic), version))
        except TopicNotFound:
            return None

    async def _open_box(self, topic: LetterTopic) -> LetterProducer:
        if topic.subscription is not None:
            async with self.consumer(
                topic.name, topic.subscription, type="shared", initial_position="earliest"
            ):
                pass  # the subscription stays
        schema = BytesSchema(topic.schema)
        return LetterProducer(await self.producer(topic.name, schema=schema, **topic.producer))

    async def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned.

        Raises ``InvalidTopicName`` or ``ClientError``.
        """
        return await self._channels.partitions(TopicName.parse(topic))

    async def topics(self, namespace: str, mode: TopicsMode = "persistent") -> list[str]:
        """The whole names of the topics of ``namespace`` (``tenant/namespace``), partitions each by
        itself. Raises ``InvalidTopicName`` or ``ClientError``."""
        name = str(NamespaceName.parse(namespace))
        found, _ = await self._channels.lookup.topics(name, mode, "")
        return sorted(found or [])

    async def close(self) -> None:
        """Close all producers and consumers, then the connections. Closing twice is harmless."""
        await self._channels.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        await self._channels.__aenter__()
        return self


class LetterProducer:
    """A producer to which a consumer posts its letters."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer

    async def post(
        self, message: Message[Any], properties: Mapping[str, str], delay_s: float | None
    ) -> None:
        """Publish the data of a message, with its keys and event time. Raises ``ClientError``."""
        await self._producer.send(
            None if message.is_null else message.data,
            key=message.key if message.is_key_text else message.key_bytes,
            ordering_key=message.ordering_key,
            properties=properties,
            event_time=message.event_time_ms,
            deliver_after=delay_s,
        )

    async def close(self) -> None:
        """Close the producer."""
        await self._producer.close()
