"""Letting producers in, and the epoch of a topic, which counts who was its exclusive one (PIP-68).

Each new exclusive producer gets the next epoch and shows it when it reconnects. One with an earlier
epoch than the topic's was away while another had the topic: it is fenced, also where the broker was
restarted in between.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import BrokerError, ProducerFenced
from geminga_broker.topics.producing.producer import Producer
from geminga_broker.topics.producing.producers import Producers
from geminga_protocol.pulsar.enums import AccessMode

NO_EPOCH = -1


class EpochTopic(Protocol):
    """The topic, as far as its epoch must know it. Both raise ``BrokerError`` where they cannot."""

    async def store_epoch(self, epoch: int) -> None:
        """Make a new epoch durable."""
        ...

    async def settle(self, producer_name: str) -> None:
        """Return when nothing that was sent under this name is under way any more."""
        ...


class TopicEpoch:
    """Of ``topic`` with these ``producers``; ``current`` is None until it had an exclusive one."""

    __slots__ = ("_producers", "_storing", "_topic", "current")

    def __init__(self, producers: Producers, topic: EpochTopic) -> None:
        self.current: int | None = None
        self._producers = producers
        self._topic: EpochTopic = proxy(topic)
        # Guards that epochs are stored in the order in which they are given. Made when it is
        # needed: there may be very many topics.
        self._storing: asyncio.Lock | None = None

    def check(self, producer: Producer) -> None:
        """Raise ``ProducerFenced`` where another was the exclusive producer meanwhile."""
        held = producer.topic_epoch
        current = NO_EPOCH if self.current is None else self.current
        if producer.access_mode is not AccessMode.SHARED and held is not None and held < current:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {held}"
            )

    async def admit(self, producer: Producer) -> None:
        """Give ``producer``, which was added to the topic's and need not wait, its epoch.

        Raises ``BrokerError`` where it gets none; then the topic has it no more.
        """
        try:
            await self._claim(producer)
        except BaseException:
            self._producers.remove(producer)
            raise

    async def promote(self, producer: Producer) -> None:
        """It is the turn of ``producer``, which waited: settle it, or let in the next."""
        refusal: BrokerError | None = None
        try:
            await self._claim(producer)
        except BrokerError as error:
            refusal = error
            self._producers.remove(producer)
        producer.settle(refusal)

    async def _claim(self, producer: Producer) -> None:
        """Wait for what is under way of its name, and give ``producer`` its epoch. Raises
        ``ProducerFenced``, also where it was let go meanwhile."""
        await self._topic.settle(producer.name)
        if producer.access_mode is AccessMode.SHARED:
            epoch = self.current
        else:
            epoch = await self._next(producer)
        if producer.is_closed:
            raise ProducerFenced("Fenced out")
        producer.topic_epoch = epoch

    async def _next(self, producer: Producer) -> int:
        """The epoch that the exclusive ``producer`` brings, or a new one. Raises
        ``ProducerFenced``."""
        if self._storing is None:
            self._storing = asyncio.Lock()
        async with self._storing:
            self.check(producer)
            held = producer.topic_epoch
            epoch = (
                (NO_EPOCH if self.current is None else self.current) + 1 if held is None else held
            )
            if epoch != self.current:
                await self._topic.store_epoch(epoch)
                self.current = epoch
        return epoch
