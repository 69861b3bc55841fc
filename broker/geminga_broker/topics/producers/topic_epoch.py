"""The epoch of a topic, which counts its exclusive producers (PIP-68), and the admission by it.

Each new exclusive producer gets the next epoch and shows it when it reconnects. A producer with an
earlier epoch than the topic's was away while another producer had the topic: it is fenced, also if
the broker was restarted in between.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import proxy

from geminga_broker.errors import BrokerError, ProducerFenced
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_protocol.pulsar.enums import AccessMode

NO_EPOCH = -1


class EpochTopic(Protocol):
    """What the epoch asks of its topic. Both methods raise ``BrokerError``."""

    async def store_epoch(self, epoch: int) -> None:
        """Make a new epoch durable."""
        ...

    async def settle(self, producer_name: str) -> None:
        """Return when no message that was sent under this name is pending any more."""
        ...


class TopicEpoch:
    """The epoch of ``topic`` with its ``producers``."""

    __slots__ = ("_producers", "_storing", "_topic", "current")

    def __init__(self, producers: Producers, topic: EpochTopic) -> None:
        # None until the topic had an exclusive producer.
        self.current: int | None = None
        self._producers = producers
        # Weak: the topic owns this.
        self._topic: EpochTopic = proxy(topic)
        # Held while an epoch is stored, so that epochs are stored in the order in which they are
        # given. Made with the first one: most topics never have an exclusive producer.
        self._storing: asyncio.Lock | None = None

    def check(self, producer: Producer) -> None:
        """Raise ``ProducerFenced`` if another was the exclusive producer since ``producer`` was."""
        # A producer without an epoch is a new one, which no other can have fenced.
        held = producer.topic_epoch
        current = NO_EPOCH if self.current is None else self.current
        if producer.access_mode is not AccessMode.SHARED and held is not None and held < current:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {held}"
            )

    async def admit(self, producer: Producer) -> None:
        """Give ``producer``, which was added and does not wait, its epoch.

        Raises ``BrokerError`` if it gets none; then it is removed again.
        """
        # Also if the client's request is cancelled: a producer without an epoch must not stay.
        try:
            await self._claim(producer)
        except BaseException:
            self._producers.remove(producer)
            raise

    async def promote(self, producer: Producer) -> None:
        """Give ``producer``, which waited and whose turn has come, its epoch, and settle it."""
        refusal: BrokerError | None = None
        try:
            await self._claim(producer)
        except BrokerError as error:
            refusal = error
            # Removing it promotes the next producer that waits.
            self._producers.remove(producer)
        producer.settle(refusal)

    async def _claim(self, producer: Producer) -> None:
        """Wait for pending messages of its name, and give ``producer`` its epoch. Raises
        ``ProducerFenced``, also if it was closed meanwhile."""
        await self._topic.settle(producer.name)
        epoch = self.current
        if producer.access_mode is not AccessMode.SHARED:
            if self._storing is None:
                self._storing = asyncio.Lock()
            async with self._storing:
                # Again: the epoch may have moved on while this waited.
                self.check(producer)
                held = producer.topic_epoch
                current = NO_EPOCH if self.current is None else self.current
                epoch = current + 1 if held is None else held
                if epoch != self.current:
                    # Durable before it is given: a later owner must never give it once more.
                    await self._topic.store_epoch(epoch)
                    self.current = epoch
        # A producer that takes the topic by force may have come during one of the waits above.
        if producer.is_closed:
            raise ProducerFenced("Fenced out")
        producer.topic_epoch = epoch
