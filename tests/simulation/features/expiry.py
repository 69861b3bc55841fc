"""Messages that expire: none before its time, and in the end all that are older.

Messages come to a topic, and no consumer acknowledges any. A consumer comes and goes:
it sees the log from where the broker has put the subscription. Whatever it misses, before a message
that it got, has expired, and must have been old enough.
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
    opened,
    taking,
)

from geminga import Client, ClientError, Consumer, Message, Opening
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated

TTL_S = 3
# How often brokers of the story look for what has expired (``CONFIG``), and how much older a
# message may be in calm times before that is done: they look every topic through once more.
CHECK_S = 1.0
LATE_S = 3 * CHECK_S
MESSAGES = 40
LOOK_S_MAX = 1.5


class Expiry(Errand):
    """A topic whose messages live for three seconds."""

    name = "expiry"
    policies = Policies(deduplication_enabled=True, message_ttl_s=TTL_S)
    goes_by_time = True

    async def open(self) -> None:
        """The subscription, before the first message."""
        self.log = Log(self.stage.clock)
        # What this life of the consumer got.
        self.seen: set[int] = set()
        # Whether all that is old has had its time to expire.
        self.is_late = False
        await self.keep(self.topic(), "watcher")

    async def live(self) -> None:
        """Publish, and look now and then."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_again_and_again(other))
            await self._publish(client)
            looking.cancel()

    async def _publish(self, client: Client) -> None:
        opening = partial(
            client.producer, self.topic(), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:
            while self.log.sent < MESSAGES:
                self.log.send(producer)
                await self.pause(2 * LIVE_S / MESSAGES)
            await producer.flush()

    async def _look_again_and_again(self, client: Client) -> None:
        while True:
            await self._look(client, self.chance.random() * LOOK_S_MAX)
            await self.pause(LOOK_S_MAX)

    async def _look(self, client: Client, seconds: float) -> None:
        consumer = await opened(partial(self._consumer, client))
        self.seen = set()
        try:
            async with taking(consumer.receive, self._came):
                await asyncio.sleep(seconds)
        finally:
            with suppress(ClientError):
                await consumer.close()

    def _consumer(self, client: Client) -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(), "watcher", type="failover", initial_position="earliest"
        )

    def _came(self, message: Message[bytes]) -> None:
        number, now_ms = int(message.data), self.stage.clock.wall_ms()
        for before in range(number):
            age_ms = now_ms - self.log.sent_ms[before]
            if before not in self.seen and age_ms < TTL_S * 1000:
                raise InvariantViolated(
                    f"{number} came, and {before} was passed over at the age of {age_ms} ms at most"
                )
        if self.is_late and now_ms - message.publish_time_ms > (TTL_S + LATE_S) * 1000:
            raise InvariantViolated(
                f"{number} came {now_ms - message.publish_time_ms} ms after it was published"
            )
        self.seen.add(number)

    async def finish(self) -> None:
        """All that there is expires, whatever comes then does not."""
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        client = self.stage.clients[0]
        opening = partial(
            client.producer, self.topic(), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:  # brokers skip an unused topic
            await asyncio.sleep(TTL_S + LATE_S)
            self.is_late = True
            self.log.send(producer)
            await producer.flush()
            last = self.log.sent - 1
            consumer = await opened(partial(self._consumer, client))
            self.seen = set()
            async with taking(consumer.receive, self._came):
                with suppress(TimeoutError):
                    async with asyncio.timeout(CALM_S_MAX):
                        while last not in self.seen:  # noqa: ASYNC110 -- calm times
                            await asyncio.sleep(RETRY_S)
            await consumer.close()
        if last not in self.seen:
            raise InvariantViolated(f"the last message never came, {sorted(self.seen)} did")
        self.deeds += 1
