"""How topics and what is in them end: termination, truncation, deletion, and subscriptions that are
given up. An operator does it while clients are at work.

- A terminated topic has no message behind the one that the operator was told is the last, and
  readers come to its end.
- What was stored before a truncation is gone, what is stored after it stays.
- A topic that is deleted and made again by its name has nothing of the former one.
- A subscription that is given up and made again has everything that the topic keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import (
    LIVE_S,
    Errand,
    Log,
    opened,
    taking,
)

from geminga import EARLIEST, Client, ClientError, Message, MessageId, TopicTerminated
from geminga_broker.broker import Broker
from geminga_broker.errors import TopicNotFound
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.checkers import check_nothing_lost

MESSAGES = 40
BURST_MAX = 6
GENERATION_MESSAGES_MAX = 12
# A topic is made and deleted so often at the most.
GENERATIONS_MAX = 5


class Ending(Errand):
    """Four topics, each of which is ended in its way."""

    name = "ending"
    policies = Policies(deduplication_enabled=True)

    async def open(self) -> None:
        """Keep what is published to those that are not deleted."""
        self.terminated = Log(self.stage.clock)
        self.stored: dict[int, MessageId] = {}
        self.last: tuple[int, int] | None = None
        self.truncated = Log(self.stage.clock)
        # All before the first is gone, all from the second on is there.
        self.gone, self.there = 0, 0
        self.generations = 0
        for local in ("terminated", "truncated", "left"):
            await self.keep(self.topic(local))

    async def live(self) -> None:
        """All four side by side."""
        client, other = self.stage.clients
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_until_the_end(client))
            tasks.create_task(self._terminate())
            tasks.create_task(self._publish(other, self.truncated, "truncated"))
            tasks.create_task(self._truncate())
            tasks.create_task(self._delete_again_and_again(other))
            tasks.create_task(self._leave_again_and_again(client))

    async def _publish(self, client: Client, log: Log, local: str, upto: int = MESSAGES) -> None:
        opening = partial(
            client.producer, self.topic(local), name="numbers", send_timeout_s=None, batching=None
        )
        async with await opened(opening) as producer:
            while log.sent < upto:
                for _ in range(min(self.chance.randint(1, BURST_MAX), upto - log.sent)):
                    log.send(producer)
                await self.pause(2 * LIVE_S / MESSAGES * BURST_MAX / 2)
            await producer.flush()

    async def _done(
        self, local: str, what: Callable[[Broker, TopicName], Awaitable[object]]
    ) -> object:
        """Have the owner of a topic do something, again and again until it is known to be done. It
        is when there is no such topic (any more)."""
        name = TopicName.parse(self.topic(local))

        async def ask(broker: Broker) -> object:
            try:
                return await what(broker, name) or True
            except TopicNotFound:
                return True

        answer = await self.stage.have_owner(self.topic(local), ask)
        self.deeds += 1
        return answer

    # Termination

    async def _publish_until_the_end(self, client: Client) -> None:
        """Send until the topic takes no more; note what is stored, and when."""
        opening = partial(
            client.producer,
            self.topic("terminated"),
            name="numbers",
            send_timeout_s=None,
            batching=None,
        )
        ended = asyncio.Event()

        def on_sent(number: int, message_id: MessageId | None, error: ClientError | None) -> None:
            if message_id is not None:
                self.stored[number] = message_id
            elif isinstance(error, TopicTerminated):
                ended.set()

        number = 0
        with suppress(TopicTerminated):
            async with await opened(opening, TopicTerminated) as producer:
                while not ended.is_set():
                    for _ in range(self.chance.randint(1, BURST_MAX)):
                        producer.send_nowait(b"%d" % number, partial(on_sent, number))
                        number += 1
                    await self.pause(0.4)

    async def _terminate(self) -> None:
        await asyncio.sleep(LIVE_S * (0.2 + 0.6 * self.chance.random()))
        answers: list[tuple[int, int]] = []

        async def terminate(broker: Broker, name: TopicName) -> object:
            answers.append(tuple(await broker.administration.terminate_topic(name)))  # type: ignore[arg-type]
            return True

        await self._done("terminated", terminate)
        if self.chance.random() < 0.5:  # it is what it is
            await self._done("terminated", terminate)
        if len(set(answers)) > 1:
            raise InvariantViolated(f"terminated at {answers}")
        self.last = answers[0]

    async def _check_terminated(self) -> None:
        client = self.stage.clients[0]
        assert self.last is not None
        beyond = {n: each for n, each in self.stored.items() if each.position > self.last}
        if beyond:
            raise InvariantViolated(f"stored behind the last one, {self.last}: {beyond}")
        with suppress(TopicTerminated):
            await opened(partial(client.producer, self.topic("terminated")), TopicTerminated)
            raise InvariantViolated("a terminated topic takes a producer")
        read: dict[MessageId, int] = {}
        reader = await opened(partial(client.reader, self.topic("terminated"), EARLIEST))

        def came(message: Message[bytes]) -> None:
            read[message.id] = int(message.data)

        async with taking(reader.read, came):
            await self.until(lambda: reader.has_reached_end, "a reader comes to the end")
        await reader.close()
        check_nothing_lost(self.stored, set(read.values()))
        if read and max(read).position != self.last:
            raise InvariantViolated(f"the last one is {max(read)}, said was {self.last}")
        numbers = list(read.values())
        if numbers != list(range(len(numbers))):
            raise InvariantViolated(f"the terminated topic has {numbers}")

    # Truncation

    async def _truncate(self) -> None:
        log = self.truncated

        async def truncate(broker: Broker, name: TopicName) -> None:
            gone = log.confirmed
            await broker.administration.truncate_topic(name)
            self.gone = gone

        while log.sent < MESSAGES * 3 / 4:
            await self.pause(LIVE_S / 2)
            await self._done("truncated", truncate)
            self.there = log.sent

    async def _check_truncated(self) -> None:
        # One more, behind all: who has it has all that there is.
        await self._publish(self.stage.clients[0], self.truncated, "truncated", MESSAGES + 1)
        # One of a keeper that is as old as the topic, one that begins with what is there.
        for subscription in ("keeper", "new"):
            numbers = await self._read("truncated", subscription, MESSAGES)
            if numbers and numbers[0] < self.gone:
                raise InvariantViolated(f"{numbers[0]} is there, all before {self.gone} went")
            check_nothing_lost(range(self.there, MESSAGES + 1), numbers)
            if numbers != list(range(MESSAGES + 1 - len(numbers), MESSAGES + 1)):
                raise InvariantViolated(f"the truncated topic has {numbers}")

    async def _read(self, local: str, subscription: str, last: int) -> list[int]:
        """What a subscription still has, up to a message."""
        client, numbers = self.stage.clients[0], list[int]()
        opening = partial(
            client.consumer, self.topic(local), subscription, initial_position="earliest"
        )
        consumer = await opened(opening)

        def came(message: Message[bytes]) -> None:
            if int(message.data) not in numbers:  # a connection may break even now
                numbers.append(int(message.data))

        async with taking(consumer.receive, came):
            with suppress(InvariantViolated):  # what is missing, the caller says
                await self.until(lambda: last in numbers, "")
        await consumer.close()
        return numbers

    # Deletion

    async def _delete_again_and_again(self, client: Client) -> None:
        """Each generation of the topic has messages of its own."""
        end_s = self.stage.now_s() + LIVE_S
        while self.generations < GENERATIONS_MAX and self.stage.now_s() < end_s:
            await self._live_a_generation(client, self.generations)
            await self._done(
                "deleted",
                lambda broker, name: broker.topics.delete(name, force=True),
            )
            self.generations += 1

    async def _live_a_generation(self, client: Client, generation: int) -> None:
        topic, seen = self.topic("deleted"), list[bytes]()
        consumer = await opened(
            partial(client.consumer, topic, "same", initial_position="earliest")
        )
        sent = [b"%d/%d" % (generation, n) for n in range(GENERATION_MESSAGES_MAX)]
        async with taking(consumer.receive, lambda message: seen.append(message.data)):
            producer = await opened(
                partial(client.producer, topic, send_timeout_s=None, batching=None)
            )
            for payload in sent[: self.chance.randint(1, GENERATION_MESSAGES_MAX)]:
                producer.send_nowait(payload)
                await self.pause(0.1)
            await producer.flush()
            with suppress(ClientError):
                await producer.close()
        with suppress(ClientError):
            await consumer.close()
        self._check_generation(seen, generation)

    def _check_generation(self, seen: list[bytes], generation: int) -> None:
        former = [each for each in seen if int(each.partition(b"/")[0]) != generation]
        # A broker that does not know yet that the topic is another's may serve the former one.
        if former and not self.stage.cluster.has_former_owner():
            raise InvariantViolated(f"topic {generation} of its name has {former}")

    async def _check_deleted(self) -> None:
        client, seen = self.stage.clients[0], list[bytes]()
        topic, generation = self.topic("deleted"), self.generations
        reader = await opened(partial(client.reader, topic, EARLIEST))
        async with await opened(partial(client.producer, topic, batching=None)) as producer:
            await producer.send(b"%d/last" % generation)
        async with taking(reader.read, lambda message: seen.append(message.data)):
            await self.until(lambda: b"%d/last" % generation in seen, "the topic made anew")
        await reader.close()
        self._check_generation(seen, generation)

    # A subscription that is given up

    async def _leave_again_and_again(self, client: Client) -> None:
        """The topic has ten messages; a new consumer gets all of them."""
        topic = self.topic("left")
        async with await opened(
            partial(client.producer, topic, send_timeout_s=None, batching=None)
        ) as producer:
            for number in range(10):
                producer.send_nowait(b"%d" % number)
            await producer.flush()
        end_s, is_new = self.stage.now_s() + LIVE_S * 2 / 3, True
        while self.stage.now_s() < end_s:
            is_new = await self._come_and_leave(client, is_new=is_new)

    async def _come_and_leave(self, client: Client, *, is_new: bool) -> bool:
        """Whether the subscription is known to be gone."""
        consumer = await opened(
            partial(client.consumer, self.topic("left"), "guest", initial_position="earliest")
        )
        try:
            async with asyncio.timeout(LIVE_S):
                first = await consumer.receive()
                is_certain = is_new and not self.stage.cluster.has_former_owner()
                if is_certain and first.data != b"0":
                    raise InvariantViolated(f"a new subscription begins at {first.data!r}")
                await consumer.ack_confirmed(first, cumulative=True)
        except (ClientError, TimeoutError):
            pass  # nothing may come when all was acknowledged in doubt
        try:
            await consumer.unsubscribe()
        except ClientError:
            with suppress(ClientError):
                await consumer.close()
            return False
        self.deeds += 1
        return True

    # In the end

    async def finish(self) -> None:
        """Look at each topic."""
        if self.truncated.failed:
            raise InvariantViolated(f"{self.name}: {self.truncated.failed}")
        await self._check_terminated()
        await self._check_truncated()
        await self._check_deleted()
