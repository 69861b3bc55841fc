"""Backlog quotas that refuse producers, by size and by age: while a subscription is too far behind
no other producer may publish, and when it has caught up all may again. Nothing is lost for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar

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

from geminga import BacklogQuotaExceeded, ClientError, Consumer, Message
from geminga_broker.policies.backlog import DESTINATION_STORAGE, MESSAGE_AGE, QuotaPolicy
from geminga_protocol.records.cluster.namespaces import BacklogQuota, Policies
from geminga_simulation.errors import InvariantViolated

ROUNDS = 2
MESSAGES_A_ROUND = 12
MESSAGE_BYTES = 200
LIMIT_BYTES = 1_500
LIMIT_S = 2
# By its size the first topic is over its quota, by its age the second.
TOPICS: dict[str, int] = {"large": MESSAGES_A_ROUND, "old": 1}


class Refusing(Errand):
    """Two topics, each with one subscription that is behind again and again."""

    name = "refusing"
    goes_by_time = True
    policies: ClassVar[Policies] = Policies(
        deduplication_enabled=True,
        backlog_quota_map={
            DESTINATION_STORAGE: BacklogQuota(
                limit=LIMIT_BYTES,
                limit_size=LIMIT_BYTES,
                policy=QuotaPolicy.REFUSE_PRODUCERS.value,
            ),
            MESSAGE_AGE: BacklogQuota(limit_time=LIMIT_S, policy=QuotaPolicy.HOLD_PRODUCERS.value),
        },
    )

    async def open(self) -> None:
        """The subscriptions, before the first message."""
        self.logs = {local: Log(self.stage.clock) for local in TOPICS}
        self.came: dict[str, list[int]] = {local: [] for local in TOPICS}
        for local in TOPICS:
            await self.keep(self.topic(local), "slow")

    async def live(self) -> None:
        """Fall behind, and catch up."""
        async with asyncio.TaskGroup() as tasks:
            for local in TOPICS:
                tasks.create_task(self._fall_behind_again_and_again(local))

    async def _fall_behind_again_and_again(self, local: str) -> None:
        for _ in range(ROUNDS):
            is_over = await self._publish(local, TOPICS[local])
            await asyncio.sleep(LIMIT_S + self.chance.random())
            is_refused = await self._is_refused(local)
            self.deeds += is_refused
            if self.stage.weather is Weather.CALM and is_over and not is_refused:
                raise InvariantViolated(f"{local} is over its quota, and takes a producer")
            await self._catch_up(local)
            await self.pause(LIVE_S / 6)

    async def _publish(self, local: str, count: int) -> bool:
        """Send some; they are stored when the consumer catches up, if not before.

        False if it had to catch up: then less than all of them is left unacknowledged.
        """
        client, log = self.stage.clients[0], self.logs[local]
        opening = partial(
            client.producer, self.topic(local), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:
            for _ in range(count):
                log.send(producer, b"%d " % log.sent + bytes(MESSAGE_BYTES))
                await self.pause(0.05)
            with suppress(TimeoutError):
                async with asyncio.timeout(LIVE_S):
                    await producer.flush()
            # The broker may have disconnected the producer when it looked at the backlog. What is
            # stored without a receipt counts for the backlog, too.
            are_stored = log.confirmed == log.sent
            await self._acknowledge_until(local, lambda: log.confirmed == log.sent)
            return are_stored

    async def _is_refused(self, local: str) -> bool:
        opening = partial(self.stage.clients[1].producer, self.topic(local), send_timeout_s=None)
        try:
            producer = await opened(opening, BacklogQuotaExceeded)
        except BacklogQuotaExceeded:
            return True
        await producer.close()
        return False

    async def _catch_up(self, local: str) -> None:
        """Acknowledge all that is known to be stored."""
        upto, came = self.logs[local].confirmed, self.came[local]
        await self._acknowledge_until(local, lambda: set(range(upto)) <= set(came))

    async def _acknowledge_until(self, local: str, is_enough: Callable[[], bool]) -> None:
        """Receive and acknowledge until that is so, as it may be from the beginning."""
        if is_enough():
            return
        consumer = await opened(partial(self.stage.clients[1].consumer, self.topic(local), "slow"))
        waiting = asyncio.Queue[Message[bytes]]()
        async with taking(consumer.receive, waiting.put_nowait):
            end_s = self.stage.now_s() + CALM_S_MAX
            while not is_enough():
                if self.stage.now_s() > end_s:
                    raise InvariantViolated(f"{self.logs[local]} in {local}: {self.came[local]}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._acknowledge(consumer, await waiting.get(), self.came[local])
        with suppress(ClientError):
            await consumer.close()

    async def _acknowledge(
        self, consumer: Consumer[bytes], message: Message[bytes], came: list[int]
    ) -> None:
        number = int(message.data.partition(b" ")[0])
        if number not in came:  # what was not known to be acknowledged comes again
            came.append(number)
        with suppress(ClientError):
            await consumer.ack_confirmed(message)

    async def finish(self) -> None:
        """All who want to publish may, when nothing is left."""
        for local, log in self.logs.items():
            if log.failed:
                raise InvariantViolated(f"{self.name}: {log.failed}")
            await self._catch_up(local)
            await self._until_free(local)
            if self.came[local] != list(range(log.sent)):
                raise InvariantViolated(f"{local} has {log.sent}, came {self.came[local]}")

    async def _until_free(self, local: str) -> None:
        """What was acknowledged in doubt comes again, and is acknowledged for good."""
        end_s = self.stage.now_s() + CALM_S_MAX
        while await self._is_refused(local):
            now_s = self.stage.now_s()
            if now_s > end_s:
                raise InvariantViolated(f"nothing is left in {local}, which takes no producer")
            await self._acknowledge_until(local, partial(self._is_over, now_s + RETRY_S))

    def _is_over(self, time_s: float) -> bool:
        return self.stage.now_s() > time_s
