"""The client: opens producers and consumers, and closes all of them with itself."""

from __future__ import annotations

from random import Random
from types import TracebackType
from typing import Self

from geminga._channels.channel import Channels, ClientOptions
from geminga._channels.consumer_channel import ConsumerChannel
from geminga._channels.producer_channel import ProducerChannel
from geminga.consumer import Consumer, ConsumerOptions
from geminga.producer import Producer, ProducerOptions, SendCallback
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.network import AsyncioNetwork, Network


class Client:
    """The way into a Pulsar cluster; used with ``async with``.

    ``service_url`` is ``pulsar://host:port``, with more brokers after commas: any of them will do.
    Network, clock and random source are given for tests and simulations. Raises
    ``InvalidServiceUrl``.
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
        self._clock = clock or SystemClock()
        self._channels = Channels(
            service_url,
            options or ClientOptions(),
            network=network or AsyncioNetwork(),
            random=random or Random(),  # noqa: S311  # jitter and names, no secrets
        )

    async def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """A producer on ``topic``, accepted by a broker.

        Raises ``InvalidTopicName``, or the ``ClientError`` for which no broker accepted it.
        """
        options = options or ProducerOptions()
        name = TopicName.parse(topic)
        channel: ProducerChannel[SendCallback] = ProducerChannel(self._channels, name, options)
        producer = Producer(channel, options, self._clock)
        await channel.open()
        return producer

    async def consumer(
        self, topic: str, subscription: str, options: ConsumerOptions | None = None
    ) -> Consumer:
        """A consumer of ``topic`` for ``subscription``, accepted by a broker.

        Raises ``InvalidTopicName``, or the ``ClientError`` for which no broker accepted it.
        """
        options = options or ConsumerOptions()
        channel = ConsumerChannel(self._channels, TopicName.parse(topic), subscription, options)
        consumer = Consumer(channel, options)
        await channel.open()
        return consumer

    async def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has; 0 if it is not partitioned.

        Raises ``InvalidTopicName`` or ``ClientError``.
        """
        return await self._channels.lookup.partitions(str(TopicName.parse(topic)))

    async def __aenter__(self) -> Self:
        await self._channels.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all producers and consumers, then the connections."""
        await self._channels.__aexit__(kind, error, trace)
