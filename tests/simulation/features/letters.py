"""Dead letters: what was refused too often by those before leaves the way free for the rest.

A consumer that knows no limit refuses messages again and again. In the end another one comes, which
buries what was refused too often as soon as it sees it, with room for few: it gets the last message
all the same, and every message was received by it, or lies in the dead letter topic.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import CALM_S_MAX, LIVE_S, Errand, Log, opened, taking

from geminga import Client, ClientError, Consumer, DeadLetterPolicy, Message, Opening, Producer
from geminga_simulation.errors import InvariantViolated

SUBSCRIPTION = "strict"
MESSAGES = 20
NACK_DELAY_S = 0.2
REDELIVERIES_MAX = 1
QUEUE_SIZE = 2


class Letters(Errand):
    """A subscription that gets a limit late."""

    name = "letters"

    async def open(self) -> None:
        """The log, and where letters are kept."""
        self.log = Log(self.stage.clock)
        self.received: set[bytes] = set()
        await self.keep(self.topic(), SUBSCRIPTION)
        await self.keep(self.topic("letters"))

    async def live(self) -> None:
        """Publish, and refuse."""
        client, other = self.stage.clients
        async with await opened(partial(self._producer, client)) as producer:
            for _ in range(MESSAGES):
                self.log.send(producer)
            consumer = await opened(
                partial(
                    other.consumer,
                    self.topic(),
                    SUBSCRIPTION,
                    type="shared",
                    nack_delay_s=NACK_DELAY_S,
                )
            )
            async with taking(consumer.receive, consumer.nack):
                await asyncio.sleep(LIVE_S)
            with suppress(ClientError):
                await consumer.close()
            await producer.flush()

    def _producer(self, client: Client) -> Opening[Producer[bytes]]:
        return client.producer(self.topic(), send_timeout_s=None, batching=None)

    def _strict(self, client: Client) -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(),
            SUBSCRIPTION,
            type="shared",
            receiver_queue_size=QUEUE_SIZE,
            dead_letters=DeadLetterPolicy(REDELIVERIES_MAX, self.topic("letters")),
        )

    async def finish(self) -> None:
        """With a limit: everything is received, or a letter."""
        client = self.stage.clients[0]
        async with await opened(partial(self._producer, client)) as producer:
            self.log.send(producer)
            await producer.flush()
        wanted = {b"%d" % number for number in range(self.log.sent)}
        letters: set[bytes] = set()
        async with (
            await opened(partial(self._strict, client)) as consumer,
            await opened(partial(client.consumer, self.topic("letters"), "keeper")) as keeper,
            taking(consumer.receive, lambda message: self._take(consumer, message)),
            taking(keeper.receive, lambda message: letters.add(message.data)),
        ):
            end_s = self.stage.now_s() + CALM_S_MAX
            while self.received | letters != wanted:
                if self.stage.now_s() > end_s:
                    missing = sorted(wanted - self.received - letters)
                    raise InvariantViolated(f"{missing} are neither received nor letters")
                await self.pause(NACK_DELAY_S)
        self.deeds += len(self.received | letters)

    def _take(self, consumer: Consumer[bytes], message: Message[bytes]) -> None:
        self.received.add(message.data)
        consumer.ack(message)
