"""Work with keys under a Key_Shared subscription, and what must hold of it.

Two producers number their messages by key. Workers come and go; each takes some messages, and
acknowledges most of them, refuses a few, and leaves with the rest unsettled.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from geminga import (
    Client,
    ClientError,
    Consumer,
    ConsumerOptions,
    MessageId,
    Producer,
)
from geminga_simulation.errors import InvariantViolated

TOPIC = "persistent://public/default/keyed"
SUBSCRIPTION = "workers"
KEYS = 6
MESSAGES = 60
BURST = 4
QUEUE_SIZES = (1, 3, 20)
SHIFT_MESSAGES_MAX = 25
WORK_S_MAX = 0.05
# A worker that gets nothing for so long looks for work anew.
IDLE_S = 1.0
REST_S_MAX = 0.5
REFUSED_SHARE, UNSETTLED_SHARE = 0.08, 0.05
NACK_DELAY_S = 0.1
RETRY_S = 0.5
OPTIONS = ConsumerOptions(
    type="key_shared",
    initial_position="earliest",
    nack_delay_s=NACK_DELAY_S,
)


class Item(NamedTuple):
    """A message by what its producer says: the ``number``\\ th of ``key``."""

    producer: str
    key: str
    number: int

    def encode(self) -> bytes:
        """Its payload."""
        return f"{self.producer}/{self.key}/{self.number}".encode()

    @classmethod
    def parse(cls, payload: bytes) -> Item:
        """The item that has this payload."""
        producer, key, number = payload.decode().split("/")
        return cls(producer, key, int(number))


@dataclass(slots=True)
class Work:
    """What became of the messages, as those who sent and took them know it.

    ``deliveries`` are in the order in which the workers took them: which one, and what.
    """

    sent: list[Item] = field(default_factory=list[Item])
    stored: set[Item] = field(default_factory=set[Item])
    settled: set[Item] = field(default_factory=set[Item])
    errors: list[str] = field(default_factory=list[str])
    deliveries: list[tuple[int, Item]] = field(default_factory=list[tuple[int, Item]])
    # Who took an item last, and has neither settled it nor left since.
    holders: dict[Item, int] = field(default_factory=dict[Item, int])
    # Items of which one came to a worker while another still had an earlier one of the key.
    overtaken: list[str] = field(default_factory=list[str])
    shifts: int = 0

    def taken(self, worker: int, item: Item) -> None:
        """``worker`` got ``item``."""
        self.deliveries.append((worker, item))
        for number in range(item.number):
            earlier = item._replace(number=number)
            holder = self.holders.get(earlier, worker)
            if earlier not in self.settled and holder != worker:
                self.overtaken.append(f"{item} came to {worker} while {holder} had {earlier}")
        self.holders[item] = worker

    def left(self, worker: int) -> None:
        """``worker`` is gone, and with it what it had."""
        self.holders = {item: each for item, each in self.holders.items() if each != worker}

    @property
    def is_done(self) -> bool:
        """Whether everything that is stored was settled."""
        return len(self.sent) == len(self.settled) + len(self.errors)


async def publish(
    producer: Producer[bytes], name: str, work: Work, chance: Random, seconds: float
) -> None:
    """Send messages of all keys, some together, and wait for all receipts."""
    numbers: dict[str, int] = defaultdict(int)

    def on_sent(item: Item, message_id: MessageId | None, error: ClientError | None) -> None:
        if message_id is None:
            work.errors.append(f"{item}: {error}")
        else:
            work.stored.add(item)

    for count in range(MESSAGES):
        await producer.ready()
        key = f"key-{chance.randrange(KEYS)}"
        item = Item(name, key, numbers[key])
        numbers[key] += 1
        work.sent.append(item)
        producer.send_nowait(item.encode(), partial(on_sent, item), key=key)
        if count % BURST == 0:
            await asyncio.sleep(seconds / MESSAGES * BURST)
    await producer.flush()


async def work_in_shifts(client: Client, work: Work, chance: Random) -> None:
    """Come, work, leave, and come again, each time as a new consumer. Never ends."""
    while True:
        worker = work.shifts
        work.shifts += 1
        queue_size = chance.choice(QUEUE_SIZES)
        options = OPTIONS | ConsumerOptions(name=f"worker-{worker}", receiver_queue_size=queue_size)
        try:
            async with await client.consumer(TOPIC, SUBSCRIPTION, **options) as consumer:
                await _shift(consumer, worker, work, chance)
        except ClientError:
            await asyncio.sleep(RETRY_S)
        work.left(worker)
        await asyncio.sleep(chance.random() * REST_S_MAX)


async def _shift(consumer: Consumer[bytes], worker: int, work: Work, chance: Random) -> None:
    for _ in range(chance.randrange(1, SHIFT_MESSAGES_MAX)):
        try:
            async with asyncio.timeout(IDLE_S):
                message = await consumer.receive()
        except TimeoutError:
            return
        item = Item.parse(message.data)
        work.taken(worker, item)
        await asyncio.sleep(chance.random() * WORK_S_MAX)
        roll = chance.random()
        if roll < REFUSED_SHARE:
            consumer.nack(message)
        elif roll > REFUSED_SHARE + UNSETTLED_SHARE:
            work.settled.add(item)
            consumer.ack(message)


def check_work(work: Work) -> None:
    """Everything stored was settled, nothing invented, and no message overtook another of its key:
    each key's messages came first in the order of sending, whichever consumer got them."""
    if work.errors:
        raise InvariantViolated(f"not stored: {work.errors[0]}")
    lost = sorted(work.stored - work.settled)
    if lost:
        raise InvariantViolated(f"{len(lost)} stored and never settled: {lost[:3]}")
    invented = sorted({item for _, item in work.deliveries} - set(work.sent))
    if invented:
        raise InvariantViolated(f"{invented[:3]} came and were never sent")
    _check_first_deliveries(item for _, item in work.deliveries)


def _check_first_deliveries(items: Iterable[Item]) -> None:
    following: dict[tuple[str, str], int] = defaultdict(int)
    for producer, key, number in items:
        expected = following[producer, key]
        if number > expected:
            raise InvariantViolated(f"{key} of {producer}: {number} came before {expected}")
        following[producer, key] = max(expected, number + 1)


def check_nothing_overtaken(work: Work) -> None:
    """Of a key, no consumer got a message while another one had an earlier one.

    Holds where workers know what they have: one whose connection breaks does not.
    """
    if work.overtaken:
        raise InvariantViolated(work.overtaken[0])
