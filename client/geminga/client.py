"""The client: opens producers and consumers, and closes all of them with itself."""

from __future__ import annotations

import asyncio
import itertools
import string
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

from geminga._transport.connection import ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.lookup import Lookup
from geminga._transport.service_urls import parse_service_url
from geminga.attachment import Attachable, Attachment
from geminga.consumer import Consumer
from geminga.consumer_options import ConsumerOptions
from geminga.errors import Closed
from geminga.producer import Producer, ProducerOptions
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.network import AsyncioNetwork, Network
from geminga_runtime.service import Service

CONSUMER_NAME_LETTERS = 8


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Times of a client, in seconds.

    Between attempts to attach a producer or consumer again, ``reconnect_first_s`` doubles up to
    ``reconnect_limit_s``.
    """

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    reconnect_first_s: float = 0.1
    # Short, because a broker or bookie that was killed is back within seconds.
    reconnect_limit_s: float = 5.0


class Client(Service):
    """The way into a Pulsar cluster; used with ``async with``.

    ``service_url`` is ``pulsar://host:port``, with more brokers after commas: any of them will do.
    Network, clock and random source are given for tests and simulations.
    """

    def __init__(
        self,
        service_url: str,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        super().__init__()
        self._options = options or ClientOptions()
        self._clock: Clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311  # jitter and names, no secrets
        self._connections = ConnectionPool(network or AsyncioNetwork(), self._options.connection)
        addresses = parse_service_url(service_url)
        self._lookup = Lookup(self._connections, addresses, self._random)
        self._ids = itertools.count()
        self._producers: dict[int, Producer] = {}
        self._consumers: dict[int, Consumer] = {}

    async def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """A producer on ``topic``, taken by a broker.

        Raises ``InvalidTopicName``, or the ``ClientError`` for which no broker took it.
        """
        name = TopicName.parse(topic)
        producer_id = next(self._ids)
        producer = Producer(name, producer_id, options or ProducerOptions(), self._clock)
        attachment = self._attachment(producer, name)
        run = self.spawn(attachment.run(), name=f"producer {producer_id} of {name}")
        attachment.begin(run)
        producer.start(attachment, run)
        self._producers[producer_id] = producer
        run.add_done_callback(lambda _: self._producers.pop(producer_id, None))
        try:
            await attachment.first()
        except asyncio.CancelledError:
            producer.gave_up(Closed(f"the producer of {name}"))
            raise
        return producer

    async def consumer(
        self, topic: str, subscription: str, options: ConsumerOptions | None = None
    ) -> Consumer:
        """A consumer of ``topic`` for ``subscription``, taken by a broker.

        Raises ``InvalidTopicName``, or the ``ClientError`` for which no broker took it.
        """
        name = TopicName.parse(topic)
        options = options or ConsumerOptions()
        consumer_id = next(self._ids)
        own_name = options.name or self._consumer_name()
        consumer = Consumer(name, subscription, consumer_id, own_name, options)
        attachment = self._attachment(consumer, name)
        run = self.spawn(attachment.run(), name=f"consumer {consumer_id} of {name}")
        attachment.begin(run)
        consumer.start(attachment, run)
        self._consumers[consumer_id] = consumer
        run.add_done_callback(lambda _: self._consumers.pop(consumer_id, None))
        try:
            await attachment.first()
        except asyncio.CancelledError:
            consumer.gave_up(Closed(f"the consumer of {name}"))
            raise
        return consumer

    async def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned.

        Raises ``InvalidTopicName`` or ``ClientError``.
        """
        return await self._lookup.partitions(str(TopicName.parse(topic)))

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._connections)

    async def _close(self) -> None:
        # Before the tasks end that keep them attached: what was sent may need a new connection.
        # All at a time, since each may wait for a broker that does not answer.
        attached: list[Producer | Consumer] = [*self._producers.values()]
        attached += self._consumers.values()
        await asyncio.gather(*(each.close() for each in attached))
        await super()._close()

    def _attachment(self, what: Attachable, name: TopicName) -> Attachment:
        options = self._options
        backoff = Backoff(options.reconnect_first_s, options.reconnect_limit_s, self._random)
        timeout_s = options.connection.operation_timeout_s
        return Attachment(what, str(name), self._lookup, self._connections, backoff, timeout_s)

    def _consumer_name(self) -> str:
        letters = self._random.choices(string.ascii_lowercase, k=CONSUMER_NAME_LETTERS)
        return "".join(letters)
