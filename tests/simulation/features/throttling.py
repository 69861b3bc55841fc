"""Rates: how fast may be published, dispatched and subscribed. Nothing is lost by them, the order
stays, and, in virtual time, they are held.

A broker that is loaded anew knows nothing of what passed before: rates are measured in calm weather
alone. What is published and received is judged in any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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

from geminga import EARLIEST, Client, ClientError, Consumer, Message, Opening
from geminga_protocol.records.cluster.namespaces import (
    DispatchRate,
    Policies,
    PublishRate,
    SubscribeRate,
)
from geminga_scenarios.cluster import CLUSTER
from geminga_simulation.errors import InvariantViolated

PUBLISH_S, DISPATCH_S = 20, 15
SUBSCRIBES, SUBSCRIBE_PERIOD_S = 3, 4
MESSAGES = 80
# What may pass at once after a pause: a second's worth; and what is on its way when it is full.
BURST_S = 1.0
UNDER_WAY_MAX = 4
LOOSE = UNDER_WAY_MAX + 2
# So much slower than its rate a topic is at most.
SLOW = 2.0


class Throttling(Errand):
    """A topic that takes and gives so many messages a second."""

    name = "throttling"
    policies = Policies(
        deduplication_enabled=True,
        publish_max_message_rate={CLUSTER: PublishRate(messages=PUBLISH_S)},
        topic_dispatch_rate={CLUSTER: DispatchRate(messages=DISPATCH_S)},
        cluster_subscribe_rate={
            CLUSTER: SubscribeRate(per_consumer=SUBSCRIBES, period_s=SUBSCRIBE_PERIOD_S)
        },
    )

    async def open(self) -> None:
        """The subscription, before the first message."""
        self.log = Log(self.stage.clock)
        self.came: list[int] = []
        self.came_s: list[float] = []
        self.subscribed_s: list[float] = []
        await self.keep(self.topic(), "steady")

    async def live(self) -> None:
        """Publish as fast as it goes, receive, and come and go."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            coming = tasks.create_task(self._come_again_and_again(other))
            consumer = await opened(partial(self._consumer, other))
            receiving = tasks.create_task(self._receive(consumer))
            await self._publish(client)
            await asyncio.sleep(LIVE_S)
            receiving.cancel()
            coming.cancel()
        with suppress(ClientError):
            await consumer.close()

    async def _publish(self, client: Client) -> None:
        opening = partial(
            client.producer, self.topic(), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:
            while self.log.sent < MESSAGES:
                # What a socket holds when a broker begins to read it again is taken as a whole.
                if self.log.sent - self.log.confirmed < UNDER_WAY_MAX:
                    self.log.send(producer)
                await asyncio.sleep(0.01)
            await producer.flush()

    def _consumer(self, client: Client, name: str = "steady") -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(), name, name=name, type="failover", initial_position="earliest"
        )

    async def _receive(self, consumer: Consumer[bytes]) -> None:
        async with taking(consumer.receive, self._came):
            await asyncio.Event().wait()

    def _came(self, message: Message[bytes]) -> None:
        self.came_s.append(self.stage.now_s())
        self.came.append(int(message.data))

    async def _come_again_and_again(self, client: Client) -> None:
        """Seek, and so have the broker let a consumer go, which subscribes again. Never ends."""
        consumer = await opened(partial(self._consumer, client, "guest"))
        try:
            while True:
                with suppress(ClientError):
                    await consumer.seek(EARLIEST)
                    self.subscribed_s.append(self.stage.now_s())
                await asyncio.sleep(RETRY_S / 3)
        finally:
            with suppress(ClientError):
                await consumer.close()

    async def finish(self) -> None:
        """All is there, in order, and came no faster than it may."""
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        if self.stage.weather is Weather.CALM:
            self._check_rates()
        client, self.came, self.came_s = self.stage.clients[0], [], []
        consumer = await opened(partial(self._consumer, client))
        async with taking(consumer.receive, self._came):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while MESSAGES - 1 not in self.came:  # noqa: ASYNC110 -- calm times
                        await asyncio.sleep(RETRY_S)
        await consumer.close()
        if list(dict.fromkeys(self.came)) != list(range(MESSAGES)):
            raise InvariantViolated(f"a throttled topic gave {self.came}")
        self.deeds += 1

    def _check_rates(self) -> None:
        receipts_s = [each / 1000 for each in self.log.receipts_ms]
        check_rate("published", receipts_s, PUBLISH_S)
        check_rate("dispatched", self.came_s, DISPATCH_S)
        each_s = SUBSCRIBES / SUBSCRIBE_PERIOD_S
        check_rate("subscribed", self.subscribed_s, each_s, burst_s=SUBSCRIBE_PERIOD_S)
        took_s = receipts_s[-1] - receipts_s[0]
        if took_s > SLOW * MESSAGES / PUBLISH_S:
            raise InvariantViolated(f"{MESSAGES} messages took {took_s} s at {PUBLISH_S} a second")


def check_rate(what: str, times_s: Sequence[float], rate: float, burst_s: float = BURST_S) -> None:
    """In no time more happened than may, and what may at once after a pause."""
    for first, began_s in enumerate(times_s):
        for last in range(first, len(times_s)):
            seconds = times_s[last] - began_s
            if last - first + 1 > rate * (seconds + burst_s) + LOOSE:
                raise InvariantViolated(
                    f"{last - first + 1} {what} in {seconds:.3f} s, {rate} a second may be"
                )
