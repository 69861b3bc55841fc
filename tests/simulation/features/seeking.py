"""Seeks: a consumer and a reader that walk about in a log while it grows, and what each must see.

One producer numbers its messages and the topic drops repeats, so that the log is 0, 1, 2, … The
model (``Trail``) knows a subscription by where the broker may begin to deliver (``floors``), and
which message may be the last that it delivered (``lasts``): the next is the one after that, or a
floor. A confirmed seek or acknowledgement leaves one floor, one in doubt adds one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
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

from geminga import (
    EARLIEST,
    LATEST,
    Batching,
    Client,
    ClientError,
    Consumer,
    Message,
    MessageId,
    Opening,
    Reader,
)
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated

MESSAGES = 60
BATCH_MAX = 5
QUEUE_SIZES = (1, 3, 20)
STEPS_MAX = 10
PAUSE_S_MAX = 0.4
SEEK_SHARE = 0.4
# Before so many seeks, what came is acknowledged.
ACKNOWLEDGING_SHARE = 0.5

# From the first of these messages to the last one.
Range = tuple[int, int]


@dataclass(slots=True)
class Trail:
    """What a walker did and saw, and what it may see next.

    ``repeats``: what was delivered and not acknowledged may come again, from the floor on, as it
    does where a connection breaks. A reader knows itself what it had: a floor holds for it until
    the first message came.
    """

    name: str
    repeats: bool
    floors: list[Range] = field(default_factory=lambda: [(0, 0)])
    lasts: set[int] = field(default_factory=set[int])
    # Nothing before it may come: the broker has confirmed that it is acknowledged.
    acknowledged: int = 0
    # What came while a seek is under way, and where that leads.
    during: list[int] | None = None
    target: Range = (0, 0)
    steps: list[str] = field(default_factory=list[str])
    # Ids and publish times of what came.
    known: dict[int, Message[bytes]] = field(default_factory=dict[int, Message[bytes]])
    # What came since the last seek, and may be acknowledged. A message from before would take along
    # what was acknowledged of its batch then, as with upstream's clients.
    fresh: set[int] = field(default_factory=set[int])

    def came(self, message: Message[bytes], *, is_certain: bool = True) -> None:
        """A message was delivered; ``is_certain``: by a broker that knows what others wrote."""
        number = int(message.data)
        self.known[number] = message
        self.fresh.add(number)
        self.steps.append(f"came {number}")
        if self.during is not None:
            # The broker may have moved the subscription: what is right is known when it says so.
            self.during.append(number)
        elif is_certain or not self.repeats:
            self._judge(number)
        else:
            self.lasts = {number}

    def _judge(self, number: int) -> None:
        floor = next((each for each in self.floors if each[0] <= number <= each[1]), None)
        if number - 1 not in self.lasts and floor is None:
            raise InvariantViolated(
                f"{self.name} got {number}: the last was one of {sorted(self.lasts)}, it could "
                f"begin at {self.floors}: {'; '.join(self.steps[-30:])}"
            )
        if number < self.acknowledged:
            raise InvariantViolated(
                f"{self.name} got {number} again, and all before {self.acknowledged} was "
                f"confirmed as acknowledged: {'; '.join(self.steps[-30:])}"
            )
        if number - 1 not in self.lasts and floor is not None:
            # The end of the log, as the broker saw it: it begins there again.
            self.floors[self.floors.index(floor)] = (number, number)
        self.lasts = {number}
        if not self.repeats:
            self.floors = []

    def reopened(self) -> None:
        """Another consumer of the subscription has been opened: nothing is on its way to it."""
        self.steps.append("opened again")
        self.lasts = set()

    def seeking(self, what: str, target: Range) -> None:
        """A seek begins."""
        self.steps.append(f"seeks {what}: {target}")
        self.during, self.target = [], target

    def sought(self, *, is_confirmed: bool, upto: int) -> None:
        """A seek has ended; ``upto`` messages were sent by then."""
        self.steps.append("sought" if is_confirmed else "may have sought")
        during, self.during = self.during or [], None
        self.fresh.clear()
        target = self.target[0], max(self.target[0], min(self.target[1], upto))
        if self.target[1] > self.target[0] and not self.repeats:
            # The end, or a time to come: a reader that has read nothing there begins at what is the
            # end then, or at that time, where the broker that knew its place is gone.
            target = target[0], MESSAGES
        if not is_confirmed:
            self.floors.append(target)
            self.acknowledged = min(self.acknowledged, target[0])
            for number in during:
                self._judge(number)
            return
        # What came meanwhile is from before the move, or from behind it, or both in this order.
        lasts: set[int] = set()
        is_from_before = True
        before = self.lasts
        for number in during:
            is_first = any(first <= number <= last for first, last in self.floors)
            is_from_before &= number - 1 in before or is_first
            before = {number}
            is_next = number - 1 in lasts
            lasts = {number} if is_next or target[0] <= number <= target[1] else set()
        # Where all may be from before, though the last of it is where the seek leads, what is
        # behind the move may still be to come, from there on.
        is_begun = bool(lasts) and not is_from_before
        self.floors, self.lasts, self.acknowledged = [target], lasts, 0
        if not self.repeats and is_begun:
            self.floors = []

    def acknowledging(self, upto: int, *, is_confirmed: bool) -> None:
        """All up to a message is acknowledged, or may be."""
        self.steps.append(f"acknowledges {upto}" + (" for sure" if is_confirmed else ""))
        moved = [(max(first, upto + 1), max(last, upto + 1)) for first, last in self.floors]
        if is_confirmed:
            self.floors = moved
            self.acknowledged = max(self.acknowledged, upto + 1)
        else:
            self.floors += [each for each in moved if each not in self.floors]


class Seeking(Errand):
    """Walkers in a growing log: a Failover subscription, and a reader."""

    name = "seeking"
    policies = Policies(deduplication_enabled=True)
    goes_by_time = True

    async def open(self) -> None:
        """The log, kept from its first message on."""
        self.log = Log(self.stage.clock)
        self.consuming = Trail("the consumer", repeats=True)
        self.reading = Trail("the reader", repeats=False)
        await self.keep(self.topic())

    async def live(self) -> None:
        """Publish, and walk."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish(client))
            tasks.create_task(self._consume(other))
            tasks.create_task(self._read(client))

    async def _publish(self, client: Client) -> None:
        batching = Batching(messages_max=self.chance.randint(1, BATCH_MAX), delay_s=0.02)
        producer = await opened(
            partial(
                client.producer,
                self.topic(),
                name="numbers",
                send_timeout_s=None,
                batching=batching,
            )
        )
        log = self.log
        while log.sent < MESSAGES:
            for _ in range(min(self.chance.randint(1, 2 * BATCH_MAX), MESSAGES - log.sent)):
                log.send(producer)
            await self.pause(2 * LIVE_S / MESSAGES * BATCH_MAX)
        await producer.flush()
        log.is_over = True
        await producer.close()

    async def _consume(self, client: Client) -> None:
        while not self.log.is_over:
            consumer = await opened(partial(self._consumer, client))
            self.consuming.reopened()
            async with taking(consumer.receive, partial(self._came, self.consuming)):
                for _ in range(self.chance.randint(1, STEPS_MAX)):
                    await self.pause(PAUSE_S_MAX)
                    if self.chance.random() < SEEK_SHARE:
                        await self._seek(consumer, self.consuming)
                    else:
                        await self._acknowledge(consumer)
            with suppress(ClientError):
                await consumer.close()

    async def _read(self, client: Client) -> None:
        reader = await opened(partial(self._reader, client))
        async with taking(reader.read, partial(self._came, self.reading)):
            while not self.log.is_over:
                await self.pause(2 * PAUSE_S_MAX)
                await self._seek(reader, self.reading)
        await reader.close()

    def _consumer(self, client: Client) -> Opening[Consumer[bytes]]:
        return client.consumer(
            self.topic(),
            "walker",
            type="failover",
            initial_position="earliest",
            batch_index_acks=True,
            receiver_queue_size=self.chance.choice(QUEUE_SIZES),
        )

    def _reader(self, client: Client) -> Opening[Reader[bytes]]:
        return client.reader(self.topic(), receiver_queue_size=self.chance.choice(QUEUE_SIZES))

    def _came(self, trail: Trail, message: Message[bytes]) -> None:
        trail.came(message, is_certain=not self.stage.cluster.has_former_owner())

    async def _seek(self, walker: Consumer[bytes] | Reader[bytes], trail: Trail) -> None:
        to, what, target = self._aim(trail)
        if isinstance(walker, Consumer) and self.chance.random() < ACKNOWLEDGING_SHARE:
            # The broker is told of it soon, and not once the subscription has been moved.
            number = max(trail.lasts, default=-1)
            if number in trail.fresh:
                trail.acknowledging(number, is_confirmed=False)
                walker.ack_cumulative(trail.known[number])
        trail.seeking(what, target)
        try:
            await walker.seek(to)
            is_confirmed = True
        except ClientError as error:
            trail.steps.append(repr(error))
            is_confirmed = False
        if self.stage.cluster.has_former_owner():
            # Of a log that is another's by now, the broker does not know the end.
            trail.target = 0, target[1]
        trail.sought(is_confirmed=is_confirmed, upto=self.log.sent)
        self.deeds += is_confirmed

    def _aim(self, trail: Trail) -> tuple[MessageId | int, str, Range]:
        """Choose where to seek, in words, and which messages may come first after that."""
        log, chance = self.log, self.chance
        roll = chance.random()
        if roll < 0.2:
            return EARLIEST, "the first", (0, 0)
        # What is sent until the broker looks may be there by then.
        end = log.confirmed, MESSAGES
        if roll < 0.35 or not trail.known:
            return LATEST, "the end", end
        number = chance.choice(sorted(trail.known))
        message = trail.known[number]
        if roll < 0.7:
            return message.id, f"{number} at {message.id}", (number, number)
        time_ms = message.publish_time_ms + chance.randint(-1, 1) * chance.choice((1, 300))
        return time_ms, f"{time_ms}", self._first_since(time_ms)

    def _first_since(self, time_ms: int) -> Range:
        """Which message may be the first that was published at a time or later: that of one which
        did not come yet lies between its sending and its receipt."""
        log, known = self.log, {**self.consuming.known, **self.reading.known}
        earliest = log.confirmed
        for number in range(log.confirmed):
            message = known.get(number)
            latest_ms = log.receipts_ms[number] if message is None else message.publish_time_ms
            if latest_ms >= time_ms:
                earliest = number
                break
        for number in range(log.sent):
            message = known.get(number)
            least_ms = log.sent_ms[number] if message is None else message.publish_time_ms
            if least_ms >= time_ms:
                return earliest, number
        return earliest, MESSAGES

    async def _acknowledge(self, consumer: Consumer[bytes]) -> None:
        trail = self.consuming
        if not trail.lasts or trail.during is not None:
            return
        number = max(trail.lasts) - self.chance.choice((0, 0, 1, 3))
        if number not in trail.fresh:
            return
        trail.acknowledging(number, is_confirmed=False)
        with suppress(ClientError):
            await consumer.ack_confirmed(trail.known[number], cumulative=True)
            trail.acknowledging(number, is_confirmed=True)

    async def finish(self) -> None:
        """A last walk from anywhere to the end."""
        log = self.log
        if log.failed:
            raise InvariantViolated(f"{self.name}: {log.failed}")
        client = self.stage.clients[0]
        consumer = await opened(partial(self._consumer, client))
        self.consuming.reopened()
        reader = await opened(partial(self._reader, client))
        self.reading = Trail("the last reader", repeats=False)
        async with (
            taking(consumer.receive, partial(self._came, self.consuming)),
            taking(reader.read, partial(self._came, self.reading)),
        ):
            await self._seek(consumer, self.consuming)
            await self._seek(consumer, self.consuming)
            await self._until_at_the_end(self.consuming)
            await self._until_at_the_end(self.reading)
        await consumer.close()
        await reader.close()

    async def _until_at_the_end(self, trail: Trail) -> None:
        end_s = self.stage.now_s() + CALM_S_MAX
        while self.stage.now_s() < end_s:
            if MESSAGES - 1 in trail.lasts or (MESSAGES, MESSAGES) in trail.floors:
                return
            await asyncio.sleep(RETRY_S)
        raise InvariantViolated(f"{trail.name} gets no more: {'; '.join(trail.steps[-30:])}")
