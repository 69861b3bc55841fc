"""Topics of which more is lost than is promised to survive: what clients must see of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.simulation.features.stage import opened

from geminga import EARLIEST, Client, ClientError, Consumer, ConsumerOptions, MessageId
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import check_nothing_invented, check_order

PLAIN, KEYED, LATER, OLD = (
    TopicName.parse(f"persistent://public/{each}")
    for each in ("default/plain", "default/keyed", "default/later", "old/old")
)
SUBSCRIPTION = "keeper"
MESSAGES = 24
KEYS = 6
DUE_S_MIN, DUE_S_MAX = 15.0, 25.0
TTL_S = 30
# So long nothing comes: what is damaged, and what stands behind it.
SILENT_S = 3.0
RECEIVED_S_MAX = 120.0
# How often brokers look for what has expired, and when they have surely looked.
CHECK_S = 2.0
EXPIRED_S = 3 * CHECK_S
FIRST, LAST = b"first", b"last"
OPTIONS: ConsumerOptions = {"initial_position": "earliest"}


@dataclass(slots=True)
class Published:
    """What was sent to one topic, in order: bodies with the ids that they were stored under."""

    topic: TopicName
    sent: dict[bytes, MessageId] = field(default_factory=dict[bytes, MessageId])
    # Of a topic with delayed messages: when each is due.
    due_ms: dict[bytes, int] = field(default_factory=dict[bytes, int])
    # Entries that cannot be read any more: (ledger id, entry id).
    damaged: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def is_damaged(self, body: bytes) -> bool:
        """Whether its entry cannot be read."""
        return self.sent[body].position in self.damaged

    async def publish(self, client: Client, bodies: Sequence[bytes], clock: Clock) -> None:
        """Publish these messages; with keys or delays where the topic has them."""
        producer = await opened(lambda: client.producer(str(self.topic), batching=None))
        async with producer:
            for body in bodies:
                due_ms = self.due_ms.get(body)
                key = body.partition(b"/")[0].decode() if self.topic is KEYED else None
                self.sent[body] = await producer.send(body, key=key, deliver_at=due_ms)
        del clock


def fresh(chance: Random, clock: Clock) -> dict[TopicName, Published]:
    """The topics, with what is due when."""
    topics = {topic: Published(topic) for topic in (PLAIN, KEYED, LATER, OLD)}
    for topic, share, soonest_s, latest_s in (
        (LATER, 0.9, DUE_S_MIN, DUE_S_MAX),
        (OLD, 0.3, 2 * TTL_S, 3 * TTL_S),
    ):
        for number in range(MESSAGES):
            if chance.random() < share:
                due_s = soonest_s + chance.random() * (latest_s - soonest_s)
                topics[topic].due_ms[b"%d" % number] = clock.wall_ms() + int(1000 * due_s)
    return topics


async def check_plain(client: Client, published: Published) -> int:
    """The subscription has all up to a damaged entry, and stands there; moved beyond it, it has the
    rest. How often it had to be moved."""
    consumer = await opened(lambda: client.consumer(str(PLAIN), SUBSCRIPTION, **OPTIONS))
    moved = 0
    async with consumer:
        left = list(published.sent)
        while left:
            if published.is_damaged(left[0]):
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENT_S):
                        message = await consumer.receive()
                        raise InvariantViolated(f"{message.data!r} came, {left[0]!r} is damaged")
                while left and published.is_damaged(left[0]):
                    left.pop(0)
                if left:
                    await consumer.seek(published.sent[left[0]])
                moved += 1
            else:
                data = await _receive(consumer)
                if data != left[0] and data not in [*published.sent][: -len(left)]:
                    raise InvariantViolated(f"{data!r} came, {left[0]!r} is next")
                if data == left[0]:
                    left.pop(0)
    return moved


async def _receive(consumer: Consumer[bytes]) -> bytes:
    async with asyncio.timeout(RECEIVED_S_MAX):
        return (await consumer.receive()).data


async def check_keyed(client: Client, published: Published, kept: Collection[bytes]) -> None:
    """A reader of the compacted topic gets the messages of each key in order, those ``kept``, and
    the last one."""
    read = list[bytes]()
    reader = await opened(lambda: client.reader(str(KEYED), EARLIEST, read_compacted=True))
    async with reader, asyncio.timeout(RECEIVED_S_MAX):
        while LAST not in read:
            read.append((await reader.read()).data)
    check_nothing_invented(published.sent, read)
    check_order([*published.sent], read)
    missing = [body for body in kept if body not in read]
    if missing:
        raise InvariantViolated(f"of the keyed topic {missing} are missing, it has {read}")


async def look_at_keyed(client: Client, published: Published) -> None:
    """A reader of the compacted topic gets, while all may be lost, nothing wrong and nothing out of
    order."""
    read = list[bytes]()
    reader = await opened(lambda: client.reader(str(KEYED), EARLIEST, read_compacted=True))
    async with reader:
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(SILENT_S):
                    read.append((await reader.read()).data)
    check_nothing_invented(published.sent, read)
    check_order([*published.sent], read)


async def take_later(client: Client, published: Published, came: set[bytes], clock: Clock) -> None:
    """Take what comes, none too early. Never ends."""
    while True:
        consumer = await opened(
            lambda: client.consumer(
                str(LATER), SUBSCRIPTION, type="shared", initial_position="earliest"
            )
        )
        with suppress(ClientError):  # what is not acknowledged comes again
            async with consumer:
                while True:
                    message = await consumer.receive()
                    early_ms = published.due_ms.get(message.data, 0) - clock.wall_ms()
                    if early_ms > 0:
                        raise InvariantViolated(f"{message.data!r} came {early_ms} ms too early")
                    came.add(message.data)
                    await consumer.ack_confirmed(message)


async def check_old(client: Client, published: Published, clock: Clock) -> None:
    """What is too old is gone, damaged or not, and keeps no consumer from what is new."""
    # Brokers do not look at a topic that no client uses.
    await published.publish(client, [FIRST], clock)
    if published.damaged:
        # How old such a message is cannot be read: its ledger must be so old as a whole.
        await asyncio.sleep(TTL_S)
    await asyncio.sleep(EXPIRED_S)
    await published.publish(client, [LAST], clock)
    consumer = await opened(lambda: client.consumer(str(OLD), SUBSCRIPTION, **OPTIONS))
    async with consumer:
        while (data := await _receive(consumer)) != LAST:
            if data not in (FIRST, *published.due_ms):
                raise InvariantViolated(f"{data!r} has expired and came")
