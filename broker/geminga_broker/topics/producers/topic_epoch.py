"""The epoch of a topic, which counts its exclusive producers (PIP-68), and the admission by it.

Each new exclusive producer gets the next epoch and shows it when it reconnects. A producer with an
earlier epoch than the topic's was away while another producer had the topic: it is fenced, also if
the broker was restarted in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from geminga_broker.errors import BrokerError, ProducerFenced
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.records.properties import set_property
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_protocol.pulsar.enums import AccessMode

NO_EPOCH = -1
# The property of the log in which upstream stores the topic's epoch.
EPOCH_PROPERTY = "pulsar.topic.epoch"

Settle = Callable[[str], Awaitable[None]]
"""Returns when no message that was sent under this producer name is pending any more. Raises
``BrokerError``."""


@dataclass(slots=True, eq=False)
class TopicEpoch:
    """The epoch of a topic with these producers."""

    _producers: Producers
    # Keeps the epoch. None for a topic without a log, whose epoch lives as long as the topic.
    _managed_ledger: ManagedLedger | None
    # None until the topic had an exclusive producer.
    current: int | None = field(default=None, init=False)
    # Held while an epoch is stored, so that epochs are stored in the order in which they are given.
    # Made with the first one: most topics never have an exclusive producer.
    _storing: asyncio.Lock | None = field(default=None, init=False)

    def check(self, producer: Producer) -> None:
        """Raise ``ProducerFenced`` if another was the exclusive producer since ``producer`` was."""
        # A producer without an epoch is a new one, which no other can have fenced. -1 is below all
        # epochs: a topic that never had an exclusive producer fences none.
        held = producer.topic_epoch
        current = NO_EPOCH if self.current is None else self.current
        if producer.access_mode is not AccessMode.SHARED and held is not None and held < current:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {held}"
            )

    async def admit(self, producer: Producer, settle: Settle) -> None:
        """Give ``producer``, which was added and does not wait, its epoch.

        Raises ``BrokerError`` if it gets none; then it is removed again.
        """
        # Also if the client's request is cancelled: a producer without an epoch must not stay.
        try:
            # It was added before, so that it holds its place while this waits: a second exclusive
            # client is refused meanwhile.
            await self._claim(producer, settle)
        except BaseException:
            self._producers.remove(producer)
            raise

    async def promote(self, producer: Producer, settle: Settle) -> None:
        """Give ``producer``, which waited and whose turn has come, its epoch, and settle it."""
        refusal: BrokerError | None = None
        try:
            # This runs in a task of the topic, not of the client's session: it goes on if the
            # client has left, and finds the producer closed at its end.
            await self._claim(producer, settle)
        except BrokerError as error:
            refusal = error
            # Removing it promotes the next producer that waits.
            self._producers.remove(producer)
        producer.settle(refusal)

    async def _claim(self, producer: Producer, settle: Settle) -> None:
        """Wait for pending messages of its name, and give ``producer`` its epoch. Raises
        ``ProducerFenced``, also if it was closed meanwhile."""
        # First, for shared producers too: the client is told the last sequence id of its name, and
        # continues behind it. That must be the number of a message that cannot be lost any more.
        await settle(producer.name)
        epoch = self.current
        if producer.access_mode is not AccessMode.SHARED:
            if self._storing is None:
                self._storing = asyncio.Lock()
            # Of two producers that come in a short time, the later one gets the higher epoch.
            async with self._storing:
                # Again: the epoch may have moved on while this waited.
                self.check(producer)
                held = producer.topic_epoch
                current = NO_EPOCH if self.current is None else self.current
                # One that reconnects keeps its epoch. It is above the topic's own if that keeps no
                # log and was loaded anew: then the topic follows.
                epoch = current + 1 if held is None else held
                if epoch != self.current:
                    # Durable before it is given: a later owner must never give it once more.
                    if self._managed_ledger is not None:
                        # If this fails, or the broker crashes, no client has the epoch. A number
                        # that is skipped does no harm: epochs are only compared.
                        await set_property(self._managed_ledger, EPOCH_PROPERTY, str(epoch))
                    self.current = epoch
        # A producer that takes the topic by force may have come during one of the waits above.
        if producer.is_closed:
            raise ProducerFenced("Fenced out")
        producer.topic_epoch = epoch
