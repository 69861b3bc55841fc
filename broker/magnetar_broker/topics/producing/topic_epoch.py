"""The epoch of a topic: counts who was its exclusive producer (PIP-68).

Each new exclusive producer gets the next epoch and shows it when it reconnects. One with an earlier
epoch than the topic's was away while another had the topic: it is fenced, also where the broker was
restarted in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar_broker.errors import ProducerFenced
from magnetar_broker.topics.producing.producers import AccessMode, Producer

NO_EPOCH = -1


class TopicEpoch:
    """Of one topic; ``current`` is None until it had an exclusive producer. ``store`` makes a new
    epoch durable, and raises ``BrokerError`` where it cannot."""

    __slots__ = ("_store", "_storing", "current")

    def __init__(self, current: int | None, store: Callable[[int], Awaitable[None]]) -> None:
        self.current = current
        self._store = store
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

    async def claim(self, producer: Producer) -> None:
        """Give ``producer``, which the topic has let in, its epoch: the one that it brings, or the
        next. Raises ``ProducerFenced``, also where it was let go meanwhile."""
        if producer.access_mode is AccessMode.SHARED:
            producer.topic_epoch = self.current
            return
        if self._storing is None:
            self._storing = asyncio.Lock()
        async with self._storing:
            self.check(producer)
            held = producer.topic_epoch
            epoch = (
                (NO_EPOCH if self.current is None else self.current) + 1 if held is None else held
            )
            if epoch != self.current:
                await self._store(epoch)
                self.current = epoch
        if producer.is_closed:
            raise ProducerFenced("Fenced out")
        producer.topic_epoch = epoch


async def keep_in_memory(_: int) -> None:
    """For a topic of which nothing is stored."""
