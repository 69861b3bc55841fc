"""Messages that are delayed for longer than a namespace allows, between others: each is refused, in
its turn, and none of the others is lost, stored twice or out of order for that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import ClassVar

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Log,
    opened,
    taking,
)

from geminga import EARLIEST, ClientError, Message, MessageId, NotAllowed, Producer
from geminga_protocol.records.cluster.namespaces import DelayedDelivery, Policies
from geminga_simulation.errors import InvariantViolated

DELAY_MAX = timedelta(seconds=1)
ROUNDS = 12
RUN_MAX = 8
REFUSED_SHARE = 0.3
REFUSED = b"refused"


class Postponing(Errand):
    """One producer, which does not know how long messages may be delayed."""

    name = "postponing"
    policies: ClassVar[Policies] = Policies(
        deduplication_enabled=True,
        delayed_delivery=DelayedDelivery(
            active=True, tick_ms=100, delay_max_ms=DELAY_MAX // timedelta(milliseconds=1)
        ),
    )

    async def open(self) -> None:
        """A topic that keeps everything."""
        self.log = Log(self.stage.clock)
        self.wrong = ""
        await self.keep(self.topic())

    async def live(self) -> None:
        """Send runs of both kinds without waiting for receipts."""
        async with await self._opened() as producer:
            for _ in range(ROUNDS):
                for _ in range(self.chance.randrange(RUN_MAX)):
                    if self.chance.random() < REFUSED_SHARE:
                        self._send_refused(producer)
                    else:
                        self.log.send(producer)
                await self.pause(LIVE_S / ROUNDS)
            await producer.flush()

    async def _opened(self) -> Producer[bytes]:
        return await opened(
            partial(
                self.stage.clients[0].producer,
                self.topic(),
                name="numbers",
                send_timeout_s=None,
                batching=None,
            )
        )

    def _send_refused(self, producer: Producer[bytes]) -> None:
        told = partial(self._told, self.log.sent)
        producer.send_nowait(REFUSED, told, deliver_after=2 * DELAY_MAX)

    def _told(self, sent: int, message_id: MessageId | None, error: ClientError | None) -> None:
        if not isinstance(error, NotAllowed) or self.log.confirmed != sent:
            told = f"{message_id}, {error!r} behind {self.log.confirmed} receipts of {sent}"
            self.wrong = self.wrong or told
        self.deeds += 1

    async def finish(self) -> None:
        """Without faults it goes on at once, and the others are there."""
        async with await self._opened() as producer:
            self.log.send(producer)
            self._send_refused(producer)
            self.log.send(producer)
            try:
                async with asyncio.timeout(CALM_S_MAX):
                    await producer.flush()
            except TimeoutError:
                raise InvariantViolated(f"{self.name}: a refusal holds up its producer") from None
        if self.wrong or self.log.failed:
            raise InvariantViolated(f"{self.name}: {self.wrong}, {self.log.failed}")
        came: list[bytes] = []

        def take(message: Message[bytes]) -> None:
            came.append(message.data)

        wanted = [b"%d" % number for number in range(self.log.sent)]
        reader = await opened(partial(self.stage.clients[1].reader, self.topic(), EARLIEST))
        async with reader, taking(reader.read, take):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    while wanted[-1] not in came:  # noqa: ASYNC110 -- calm times
                        await asyncio.sleep(RETRY_S)
        if came != wanted:
            raise InvariantViolated(f"{self.name}: {came} came of {len(wanted)}")
