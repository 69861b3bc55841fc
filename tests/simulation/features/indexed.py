"""Indexes: brokers number the messages that they store, over all of a topic and for ever.

A topic is written, in batches, while it changes hands. In the end its entries are read as they are
stored: the index of each is that of the entry before, and as many more as it has messages; where
brokers die it may be more.
"""

from __future__ import annotations

from functools import partial

from tests.simulation.features.stage import LIVE_S, Errand, Log, Weather, opened

from geminga import Batching
from geminga_broker.broker import Broker
from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.writing.broker_entry_metadata import index_of
from geminga_protocol.pulsar.messages.payload import parse_metadata
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_simulation.errors import InvariantViolated

# What brokers of the story write in front of entries, where this errand is told. Not the time:
# seeks and expiry would go by it, and the models of their errands go by that of publishing.
INTERCEPTORS = (INDEX_INTERCEPTOR,)
MESSAGES = 60
BATCH_MAX = 5
# Of these some more are sent by brokers that begin anew.
LAST_MESSAGES = 6


class Indexed(Errand):
    """A topic whose messages have an index."""

    name = "indexed"

    async def open(self) -> None:
        """The log, kept from its first message on."""
        self.log = Log(self.stage.clock)
        await self.keep(self.topic())

    async def live(self) -> None:
        """Publish."""
        await self._publish(MESSAGES)

    async def _publish(self, count: int) -> None:
        batching = Batching(messages_max=self.chance.randint(1, BATCH_MAX), delay_s=0.02)
        opening = partial(
            self.stage.clients[0].producer, self.topic(), send_timeout_s=None, batching=batching
        )
        log = self.log
        async with await opened(opening) as producer:
            end = log.sent + count
            while log.sent < end:
                for _ in range(min(self.chance.randint(1, 2 * BATCH_MAX), end - log.sent)):
                    log.send(producer)
                await self.pause(2 * LIVE_S / MESSAGES * BATCH_MAX)
            await producer.flush()

    async def finish(self) -> None:
        """Publish a little more, and look at all that is stored."""
        await self._publish(LAST_MESSAGES)
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        stored = await self.stage.have_owner(self.topic(), self._stored)
        index = -1
        for messages, found in stored:
            index += messages
            # The log's record is written with the index of what was taken last: what of that dies
            # with its broker leaves a gap, as upstream.
            may_skip = self.stage.weather is not Weather.CALM
            if found < index or (found > index and not may_skip):
                raise InvariantViolated(f"the index of a message is {found}, not {index}: {stored}")
            index = found
        # What was sent again without a receipt is stored twice.
        count = sum(messages for messages, _ in stored)
        if count < self.log.sent:
            raise InvariantViolated(f"{self.log.sent} messages were sent, {count} are stored")
        self.deeds += len(stored)

    async def _stored(self, broker: Broker) -> list[tuple[int, int]]:
        """Of each entry, how many messages it has, and its index."""
        topic = await broker.topics.get(TopicName.parse(self.topic()), create=False)
        log = topic.managed_ledger
        payloads = [
            await log.reader.read_one(Position(span.ledger_id, entry_id))
            for span in list(log.chain.spans)
            for entry_id in range(span.entries)
        ]
        return [(parse_metadata(each).num_messages_in_batch, index_of(each)) for each in payloads]
