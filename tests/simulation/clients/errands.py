"""What a program does with a client, from opening to closing, with every command that clients send
and receive: the same whatever becomes of its connections.

A topic that deduplicates has each message once in the end, in the order of sending. A client that
receives sees that order, too: what comes again came before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.simulation.topics import once

from geminga import (
    EARLIEST,
    AutoConsumeSchema,
    Client,
    ClientError,
    Consumer,
    ConsumerBusy,
    MessageId,
    Producer,
    ProducerBusy,
    StringSchema,
)
from geminga_simulation.errors import InvariantViolated

AnswerT = TypeVar("AnswerT")

MESSAGES = 12
KEYS = 5
NACKED_EACH = 4
RETRY_S = 0.3
# In storms, so long a producer or consumer is waited for at first, then each time twice as long.
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.005, 2.0
# A request is made so often before its error counts; a broken connection costs one. A connection
# that has gone dark is known to its broker for up to a minute, and until then its consumer, which
# is on another one now, is not the only one that may unsubscribe.
ATTEMPTS_MAX = 220
# Without it nothing takes so long: keep-alive notices after a minute that a peer is gone.
ERRAND_S = 300.0


@dataclass(frozen=True, slots=True)
class Errand:
    """``name`` makes topics of its own. ``unload`` has a topic's broker let go of it.

    ``opens_at_once``: opening must succeed the first time, as it does where a connection breaks.
    ``idle_s``: so long nothing is done for once.
    """

    name: str
    unload: Callable[[str], Awaitable[None]]
    opens_at_once: bool = True
    idle_s: float = 0.0

    @property
    def topic(self) -> str:
        """The topic that all of it is about."""
        return f"persistent://{once.NAMESPACE}/{self.name}"

    @property
    def sent(self) -> list[bytes]:
        """The messages that are sent to the topic, in order, before the last one."""
        return [b"%d" % number for number in range(MESSAGES)]

    async def run(self, client: Client) -> None:
        """Do all of it. Raises ``InvariantViolated``."""
        try:
            async with asyncio.timeout(ERRAND_S):
                await self._publish_and_consume(client)
                await self._look_back(client)
                await self._read_a_schema(client)
        except TimeoutError:
            raise InvariantViolated(f"{self.name} hangs") from None

    async def _open(self, opening: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        if self.opens_at_once:
            return await opening()
        # Who gives up soon, and asks again, finds the place taken by the first attempt as long as
        # the broker has not heard of that, and no longer.
        patience_s = PATIENCE_S_MIN
        while True:
            try:
                async with asyncio.timeout(patience_s if patience_s < PATIENCE_S_MAX else None):
                    return await again(opening)
            except TimeoutError:
                patience_s *= 2
            except (ConsumerBusy, ProducerBusy):
                await asyncio.sleep(RETRY_S)

    async def _publish_and_consume(self, client: Client) -> None:
        topic, late_topic = self.topic, f"{self.topic}-late"
        # What every subscription has acknowledged is trimmed: this one keeps all of it.
        keeper = await self._open(
            lambda: client.consumer(topic, "keeper", initial_position="earliest")
        )
        await keeper.close()
        ordered = await self._open(
            lambda: client.consumer(topic, "ordered", type="failover", initial_position="earliest")
        )
        shared = await self._open(
            lambda: client.consumer(
                topic, "shared", type="shared", initial_position="earliest", nack_delay_s=0.2
            )
        )
        pattern = re.compile(f"{once.NAMESPACE}/{self.name}.*")
        matching = await self._open(
            lambda: client.consumer(
                pattern, "matching", initial_position="earliest", topics_refresh_s=20.0
            )
        )
        producer = await self._open(
            lambda: client.producer(topic, name=self.name, send_timeout_s=None)
        )
        sent = self.sent
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(producer))
            tasks.create_task(take(ordered, sent))
            tasks.create_task(refuse_some(shared, sent))
            tasks.create_task(take(matching, [*sent, b"late"], is_mixed=True))
            tasks.create_task(self._send_late(client, late_topic))
        await again(shared.unsubscribe)
        await again(lambda: ordered.seek(EARLIEST))
        await take(ordered, sent)
        await matching.close()
        await asyncio.sleep(self.idle_s)
        await producer.send(b"last")
        await take(ordered, [b"last"], before=sent)
        await producer.close()
        await ordered.close()

    async def _send(self, producer: Producer[bytes]) -> None:
        stored: list[MessageId] = []

        def on_sent(message_id: MessageId | None, error: ClientError | None) -> None:
            assert message_id is not None, error
            stored.append(message_id)

        sent = self.sent
        for number, payload in enumerate(sent):
            await producer.ready()
            producer.send_nowait(payload, on_sent, key=str(number % KEYS))
            if number % 3 == 0:
                await asyncio.sleep(0.05)
            if number == MESSAGES // 2:
                await self.unload(self.topic)
        await producer.flush()
        if len(stored) != len(sent):
            raise InvariantViolated(f"{self.name}: {len(stored)} receipts of {len(sent)}")

    async def _send_late(self, client: Client, topic: str) -> None:
        """A topic that the pattern's consumer has to be told of."""
        await asyncio.sleep(0.5)
        async with await self._open(lambda: client.producer(topic, send_timeout_s=None)) as late:
            await late.send(b"late")

    async def _look_back(self, client: Client) -> None:
        """The topic has each message once, to a reader and to a view."""
        everything = [*self.sent, b"last"]
        reader = await self._open(lambda: client.reader(self.topic, EARLIEST))
        read: list[bytes] = []
        while await again(reader.has_message_available):
            read.append((await reader.read()).data)
        await reader.close()
        if read != everything:
            raise InvariantViolated(f"{self.name} sent {everything} and read {read}")
        view = await again(lambda: client.table_view(self.topic))
        newest = {str(number % KEYS): each for number, each in enumerate(self.sent)}
        if dict(view) != newest:
            raise InvariantViolated(f"{self.name} sees {dict(view)} instead of {newest}")
        await view.close()

    async def _read_a_schema(self, client: Client) -> None:
        """A consumer asks for the schema with which messages were written."""
        topic = f"persistent://{once.NAMESPACE}/typed-{self.name}"
        consumer = await self._open(
            lambda: client.consumer(
                topic, "any", schema=AutoConsumeSchema(), initial_position="earliest"
            )
        )
        producer = await self._open(
            lambda: client.producer(topic, schema=StringSchema(), send_timeout_s=None)
        )
        await producer.send("a text")
        message = await consumer.receive()
        if message.value != "a text":
            raise InvariantViolated(f"{self.name} received {message.value!r}")
        await producer.close()
        await consumer.close()


async def again(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Make a request again while its error says that this may help; returns its result."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await ask()
        except ClientError as error:
            if not error.retry:
                raise
        await asyncio.sleep(RETRY_S)
    return await ask()


async def take(
    consumer: Consumer[bytes],
    expected: Sequence[bytes],
    *,
    before: Sequence[bytes] = (),
    is_mixed: bool = False,
) -> None:
    """Receive and acknowledge what is expected. What came before, then or now, may come again.

    ``is_mixed``: the last expected is of another topic, and may come at any time.
    """
    came: list[bytes] = []
    while len(came) < len(expected):
        message = await consumer.receive()
        if message.data not in came and message.data not in before:
            came.append(message.data)
        if len(came) % 2:
            consumer.ack(message)
        else:
            await again(lambda message=message: consumer.ack_confirmed(message))  # type: ignore[misc]  # mypy cannot infer it
    if is_mixed:
        came.sort(key=[*expected].index)
    if came != list(expected):
        raise InvariantViolated(f"{consumer.subscription}: {expected} came as {came}")


async def refuse_some(consumer: Consumer[bytes], expected: Sequence[bytes]) -> None:
    """Refuse some messages once each, and acknowledge everything in the end."""
    refused: set[bytes] = set()
    done: set[bytes] = set()
    while len(done) < len(expected):
        message = await consumer.receive()
        if int(message.data) % NACKED_EACH == 0 and message.data not in refused:
            refused.add(message.data)
            consumer.nack(message)
        else:
            done.add(message.data)
            consumer.ack(message)
