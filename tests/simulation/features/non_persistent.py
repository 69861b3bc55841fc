"""A non-persistent topic: messages go to the consumers that are connected, or nowhere.

Nothing is invented, nothing comes twice, and what comes over one connection is in the order of
sending. A message may be lost where a consumer has no permits, where a connection breaks, where the
topic moves; in calm weather none is, for a consumer with room for all of them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Log,
    Weather,
    opened,
    taking,
)

from geminga import Client, ClientError, Consumer, Message, Opening
from geminga_simulation.errors import InvariantViolated

MESSAGES = 60
BURST_MAX = 8
NARROW = 2
# A word that is sent until it comes: the topic works again.
HELLO = b"hello"


class NonPersistent(Errand):
    """Two subscriptions of a topic that keeps nothing: one with room for all, one with little."""

    name = "non-persistent"

    async def open(self) -> None:
        """Nothing is there before its consumers are."""
        self.log = Log(self.stage.clock)
        self.came: dict[str, list[int]] = {"wide": [], "narrow": []}
        self.is_heard = False

    def topic(self, local: str = "topic") -> str:
        """Not one that is stored."""
        return f"non-{super().topic(local)}"

    async def live(self) -> None:
        """Publish, and listen."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            wide = await opened(partial(self._consumer, other, "wide"))
            narrow = await opened(partial(self._consumer, other, "narrow"))
            listening = [
                tasks.create_task(self._listen(wide, "wide")),
                tasks.create_task(self._listen(narrow, "narrow")),
            ]
            await self._publish(client)
            await self.pause(1.0)
            for task in listening:
                task.cancel()
        for consumer in (wide, narrow):
            with suppress(ClientError):
                await consumer.close()
        self.deeds += len(self.came["wide"])

    def _consumer(self, client: Client, name: str) -> Opening[Consumer[bytes]]:
        size = MESSAGES * 2 if name == "wide" else NARROW
        return client.consumer(self.topic(), name, receiver_queue_size=size)

    async def _listen(self, consumer: Consumer[bytes], name: str) -> None:
        came = self.came[name]
        async with taking(consumer.receive, lambda message: came.append(int(message.data))):
            await asyncio.Event().wait()

    async def _publish(self, client: Client) -> None:
        opening = partial(client.producer, self.topic(), send_timeout_s=None, batching=None)
        async with await opened(opening) as producer:
            while self.log.sent < MESSAGES:
                for _ in range(min(self.chance.randint(1, BURST_MAX), MESSAGES - self.log.sent)):
                    self.log.send(producer)
                await self.pause(2 * LIVE_S / MESSAGES * BURST_MAX / 2)
            await producer.flush()

    async def finish(self) -> None:
        """Judge what came, and see that the topic is there."""
        for name, numbers in self.came.items():
            if self.stage.weather is not Weather.STORM and len(set(numbers)) != len(numbers):
                raise InvariantViolated(f"{name} got messages twice: {numbers}")
            if not set(numbers) <= set(range(self.log.sent)):
                raise InvariantViolated(f"{name} got what was never sent: {numbers}")
            if self.stage.weather is Weather.CALM and numbers != sorted(numbers):
                raise InvariantViolated(f"{name} got messages out of order: {numbers}")
        if self.stage.weather is Weather.CALM and self.came["wide"] != list(range(MESSAGES)):
            raise InvariantViolated(f"{self.came['wide']} came where nothing was in the way")
        await self._greet()

    async def _greet(self) -> None:
        client, other = self.stage.clients
        consumer = await opened(partial(self._consumer, other, "wide"))
        producer = await opened(partial(client.producer, self.topic(), send_timeout_s=None))
        async with taking(consumer.receive, self._heard):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while not self.is_heard:
                        await producer.send(HELLO)
                        await asyncio.sleep(RETRY_S)
        await producer.close()
        await consumer.close()
        if not self.is_heard:
            raise InvariantViolated("nothing comes over a non-persistent topic any more")

    def _heard(self, message: Message[bytes]) -> None:
        self.is_heard |= message.data == HELLO
