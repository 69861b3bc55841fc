"""A backlog quota that moves subscriptions on, in a namespace that retains everything: what a
subscription loses are the oldest messages and no more than it must, and a reader still finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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

from geminga import EARLIEST, Client, Consumer, Message, Reader
from geminga_broker.policies.backlog import DESTINATION_STORAGE, TENTHS_LEFT, QuotaPolicy
from geminga_protocol.records.cluster.namespaces import BacklogQuota, Policies, RetentionPolicies
from geminga_simulation.errors import InvariantViolated

MESSAGES = 60
MESSAGE_BYTES = 200
# What is stored of a message beside its payload, at most.
OVERHEAD_BYTES_MAX = 100
LIMIT_BYTES = 5_000
# How often brokers of the story look at backlogs (``CONFIG``); a broker that was just started looks
# once before it has all figures.
CHECK_S = 1.0
CHECKS = 4


class Quotas(Errand):
    """A subscription that acknowledges nothing and may have a backlog of 5 KB."""

    name = "quotas"
    policies = Policies(
        deduplication_enabled=True,
        backlog_quota_map={
            DESTINATION_STORAGE: BacklogQuota(
                limit=LIMIT_BYTES, limit_size=LIMIT_BYTES, policy=QuotaPolicy.EVICT_BACKLOG.value
            )
        },
        retention=RetentionPolicies(time_minutes=-1, size_mib=-1),
    )

    async def open(self) -> None:
        """The subscription, before the first message."""
        self.log = Log(self.stage.clock)
        await self.keep(self.topic(), "idle")

    async def live(self) -> None:
        """Publish."""
        await self._publish(self.stage.clients[0], MESSAGES)

    async def _publish(self, client: Client, upto: int) -> None:
        opening = partial(
            client.producer, self.topic(), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:
            while self.log.sent < upto:
                self.log.send(producer, b"%d " % self.log.sent + bytes(MESSAGE_BYTES))
                await self.pause(2 * LIVE_S / MESSAGES)
            await producer.flush()
            if upto > MESSAGES:  # brokers skip a topic that no client uses
                await asyncio.sleep(CHECKS * CHECK_S)

    async def finish(self) -> None:
        """See what is left, and that all is there."""
        if self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.log.failed}")
        client = self.stage.clients[0]
        await self._publish(client, MESSAGES + 1)
        left = await self._read(partial(client.consumer, self.topic(), "idle"))
        if left != list(range(MESSAGES + 1))[-len(left) :]:
            raise InvariantViolated(f"an idle subscription has {left}")
        if len(left) * MESSAGE_BYTES > LIMIT_BYTES:
            raise InvariantViolated(f"a backlog of {len(left)} messages is over its quota")
        left_bytes = (len(left) + 1) * (MESSAGE_BYTES + OVERHEAD_BYTES_MAX)
        if left_bytes < LIMIT_BYTES * TENTHS_LEFT / 10:
            raise InvariantViolated(f"of a backlog {len(left)} messages were left")
        everything = await self._read(partial(client.reader, self.topic(), EARLIEST))
        if everything != list(range(MESSAGES + 1)):
            raise InvariantViolated(f"{everything} was retained")
        self.deeds += 1

    async def _read(
        self, opening: Callable[[], Awaitable[Consumer[bytes] | Reader[bytes]]]
    ) -> list[int]:
        numbers: list[int] = []

        def came(message: Message[bytes]) -> None:
            number = int(message.data.partition(b" ")[0])
            if number not in numbers:  # a connection may break even now
                numbers.append(number)

        source = await opened(opening)
        async with taking(source.receive if isinstance(source, Consumer) else source.read, came):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while MESSAGES not in numbers:  # noqa: ASYNC110 -- calm times
                        await asyncio.sleep(RETRY_S)
        await source.close()
        return numbers
