"""Acknowledgements within batches: what was confirmed of a batch never comes again, and after a
restart of all brokers exactly the others come.

Two subscriptions of one topic. The consumers of ``shared`` acknowledge and refuse messages one by
one, in any order; that of ``ordered`` acknowledges up to a message in the midst of a batch.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Log,
    opened,
    taking,
)

from geminga import Batching, Client, ClientError, Consumer, Message, Opening
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import NoLostAcknowledgement, check_acknowledgements

MESSAGES = 60
BATCH_MAX = 8
QUEUE_SIZES = (1, 4, 30)
# Of the messages so many are acknowledged; of the others some are refused.
SETTLED_SHARE, REFUSED_SHARE = 0.6, 0.1
NACK_DELAY_S = 0.2
IDLE_S = 1.0
SHIFT_MESSAGES_MAX = 25
CALM_ACKS_MAX = 12
DURABLE_S = 0.5
PAUSE_S_MAX = 0.1
# No number of a message: it is sent last, so that who has it has all.
END = b"end"


@dataclass(slots=True)
class Settled:
    """What one subscription was told to have settled."""

    type: Literal["shared", "failover"]
    confirmed: set[int] = field(default_factory=set[int])
    in_doubt: set[int] = field(default_factory=set[int])
    # One for each client. What was sent over the connection of one may be on its way while another
    # acknowledges it: refusing a message gives all of its batch to the next consumer.
    watches: dict[Client, NoLostAcknowledgement] = field(
        default_factory=lambda: defaultdict(NoLostAcknowledgement)
    )

    async def settle(
        self,
        client: Client,
        consumer: Consumer[bytes],
        message: Message[bytes],
        meant: set[int],
    ) -> None:
        """Acknowledge a message, or all up to it: ``meant``."""
        self.in_doubt |= meant - self.confirmed
        with suppress(ClientError):
            await consumer.ack_confirmed(message, cumulative=self.type == "failover")
            self.watches[client].confirmed(meant)
            self.confirmed |= meant
            self.in_doubt -= meant


class BatchAcks(Errand):
    """Messages that are acknowledged one by one, though they came in batches."""

    name = "batch-acks"
    policies = Policies(deduplication_enabled=True)

    async def open(self) -> None:
        """The subscriptions, from the first message on."""
        self.log = Log(self.stage.clock)
        self.shared, self.ordered = Settled("shared"), Settled("failover")
        for settled in (self.shared, self.ordered):
            await (await opened(partial(self._consumer, self.stage.clients[0], settled))).close()

    async def live(self) -> None:
        """Publish batches, and settle messages."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            working = [
                tasks.create_task(self._work(client, self.shared)),
                tasks.create_task(self._work(other, self.shared)),
                tasks.create_task(self._work(other, self.ordered)),
            ]
            await self._publish(client)
            await self.pause(LIVE_S / 3)
            for task in working:
                task.cancel()

    async def _publish(self, client: Client) -> None:
        batching = Batching(messages_max=BATCH_MAX, delay_s=0.01)
        opening = partial(
            client.producer, self.topic(), name="numbers", send_timeout_s=None, batching=batching
        )
        async with await opened(opening) as producer:
            while self.log.sent < MESSAGES:
                for _ in range(min(self.chance.randint(1, BATCH_MAX), MESSAGES - self.log.sent)):
                    self.log.send(producer)
                await self.pause(2 * LIVE_S / MESSAGES * BATCH_MAX / 2)
            await producer.flush()
            await producer.send(END)

    def _consumer(self, client: Client, settled: Settled) -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(),
            f"sub-{settled.type}",
            type=settled.type,
            initial_position="earliest",
            batch_index_acks=True,
            nack_delay_s=NACK_DELAY_S,
            receiver_queue_size=self.chance.choice(QUEUE_SIZES),
        )

    async def _work(self, client: Client, settled: Settled) -> None:
        """Come, settle some messages, and leave; never ends."""
        while True:
            consumer = await opened(partial(self._consumer, client, settled))
            came: asyncio.Queue[Message[bytes]] = asyncio.Queue()
            try:
                async with taking(consumer.receive, partial(self._came, client, settled, came)):
                    await self._shift(client, consumer, settled, came)
            finally:
                with suppress(ClientError):
                    await consumer.close()
            await self.pause(PAUSE_S_MAX)

    def _came(
        self,
        client: Client,
        settled: Settled,
        came: asyncio.Queue[Message[bytes]],
        message: Message[bytes],
    ) -> None:
        if message.data != END:
            if not self.stage.cluster.has_former_owner():
                settled.watches[client].delivered(int(message.data))
            came.put_nowait(message)

    async def _shift(
        self,
        client: Client,
        consumer: Consumer[bytes],
        settled: Settled,
        came: asyncio.Queue[Message[bytes]],
    ) -> None:
        for _ in range(self.chance.randint(1, SHIFT_MESSAGES_MAX)):
            try:
                async with asyncio.timeout(IDLE_S):
                    message = await came.get()
            except TimeoutError:
                return
            await self.pause(PAUSE_S_MAX)
            roll, number = self.chance.random(), int(message.data)
            if settled is self.ordered:
                if roll < SETTLED_SHARE / 4:
                    await settled.settle(client, consumer, message, set(range(number + 1)))
            elif roll < SETTLED_SHARE:
                await settled.settle(client, consumer, message, {number})
                self.deeds += 1
            elif roll < SETTLED_SHARE + REFUSED_SHARE:
                consumer.nack(message)

    async def calm(self) -> None:
        """Acknowledge some more, without asking for a confirmation: brokers make it durable within
        a tenth of a second, although no client waits for it."""
        client = self.stage.clients[0]
        consumer = await opened(partial(self._consumer, client, self.shared))
        came: asyncio.Queue[Message[bytes]] = asyncio.Queue()
        acknowledged = set[int]()
        async with taking(consumer.receive, partial(self._came, client, self.shared, came)):
            with suppress(TimeoutError):
                while len(acknowledged) < CALM_ACKS_MAX:
                    async with asyncio.timeout(IDLE_S):
                        message = await came.get()
                    consumer.ack(message)
                    acknowledged.add(int(message.data))
        await consumer.close()
        await asyncio.sleep(DURABLE_S)
        self.shared.confirmed |= acknowledged
        self.shared.in_doubt -= acknowledged

    async def finish(self) -> None:
        """See what comes again."""
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        for settled in (self.shared, self.ordered):
            await self._check(settled)

    async def _check(self, settled: Settled) -> None:
        came: list[bytes] = []
        missing = {b"%d" % n for n in range(MESSAGES)}
        missing -= {b"%d" % n for n in settled.confirmed | settled.in_doubt}
        missing.add(END)
        consumer = await opened(partial(self._consumer, self.stage.clients[0], settled))
        async with taking(consumer.receive, lambda message: came.append(message.data)):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while not missing <= set(came):  # noqa: ASYNC110 -- calm times
                        await asyncio.sleep(RETRY_S)
            await asyncio.sleep(IDLE_S)  # nor does anything come after that
        await consumer.close()
        if missing - set(came):
            raise InvariantViolated(f"{settled.type}: {sorted(missing - set(came))} never came")
        check_acknowledgements(
            range(MESSAGES),
            settled.confirmed,
            [int(each) for each in came if each != END],
            in_doubt=settled.in_doubt,
        )
