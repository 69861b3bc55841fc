"""Programs that use the client library without care: they give up what they began, send what is too
large, and close what others of their tasks are in the midst of, or what they go on to use.

No call hangs: it gives its result, what it was given up by, or a ``ClientError``. What is closed
says so. What a program was told is stored is there, and what was refused is not. A client that
closes is closed soon, also where nothing that it sends arrives.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from tests.simulation.features.chunks import ENTRY_BYTES_MAX
from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    opened,
)

from geminga import (
    EARLIEST,
    Client,
    ClientError,
    Closed,
    Consumer,
    DeadLetterPolicy,
    MessageTooLarge,
    Producer,
    ProducerBusy,
    ProducerQueueFull,
    Reader,
    TableView,
)
from geminga_broker.broker import Broker
from geminga_broker.errors import TopicNotFound
from geminga_cluster.partitioned_topics import PartitionedTopics
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies, RetentionPolicies
from geminga_runtime.errors import GemingaError
from geminga_simulation.errors import HostCrashed, InvariantViolated

PARTITIONS = 3
# So long, at the most, a client waits for what it opens or reads.
PATIENCE_S_MAX = 0.3
DEEDS_A_LIFE = 8
# So long those rest whose life was over.
REST_S_MAX = 2.0
LETTERS = 4
# What a client has not sent yet when it closes: more than is under way on any stream.
UNSENT_BYTES = 256 * 1024
# A client waits for receipts, then for its brokers, then for its connections.
CLOSING_S_MAX = 15.0
# Longer than brokers take: the client has to look itself for topics that match.
LONG_NAME = "a-name-that-no-topic-has-and-that-is-longer-than-patterns-may-be"


class Careless(Errand):
    """Senders, readers, one who matches names, one with dead letters, and one who leaves."""

    name = "careless"
    # What is sent to a topic before its first subscription is kept by nothing else.
    policies: ClassVar[Policies] = Policies(
        retention=RetentionPolicies(time_minutes=-1, size_mib=-1)
    )

    async def open(self) -> None:
        """A topic with partitions, which keeps everything."""
        self.number = 0
        self.stored: set[int] = set()
        self.refused: set[int] = set()
        self.buried: set[bytes] = set()
        async with self.stage.cluster.world.host("setup").coordination() as setup:
            for local in ("topic", "growing"):
                name = TopicName.parse(self.topic(local))
                await PartitionedTopics(setup).create(name, PARTITIONS)
        await self.keep(self.topic())
        await self.keep(self.topic("letters"))

    async def live(self) -> None:
        """All side by side."""
        client, other = self.stage.clients
        end_s = self.stage.now_s() + LIVE_S
        async with asyncio.TaskGroup() as tasks:
            for each in (client, other):
                tasks.create_task(self._until(end_s, partial(self._send, each)))
            for look in (self._consume, self._read, self._view, self._copy):
                tasks.create_task(self._until(end_s, partial(look, other)))
            tasks.create_task(self._match(client))
            tasks.create_task(self._grow(client, other))
            tasks.create_task(self._until(end_s, self._quit))
            tasks.create_task(self._until(end_s, partial(self._look_around, client)))
            tasks.create_task(self._bury(other))
            tasks.create_task(self._leave_in_the_dark())

    async def _until(self, end_s: float, life: Callable[[], Awaitable[object]]) -> None:
        """Live one life after the other. Raises ``InvariantViolated`` where one hangs."""
        while self.stage.now_s() < end_s:
            await self._ends(life)
            await self.pause(REST_S_MAX)

    async def _ends(self, life: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(CALM_S_MAX):
                await life()
        except TimeoutError:
            raise InvariantViolated(f"{self.name}: {life} hangs") from None

    def _patience(self) -> asyncio.Timeout:
        """For a while that is often too short."""
        return asyncio.timeout(self.chance.random() * PATIENCE_S_MAX)

    # Those who send

    async def _send(self, client: Client) -> None:
        """Open a producer, use it in all ways, and go on when it is closed."""
        opening = partial(
            client.producer,
            self.topic(),
            name=self.chance.choice((None, "same")),
            lazy_start_partitioned_producers=bool(self.chance.randrange(2)),
            pending_messages_max=self.chance.choice((1, 2, 20)),
            send_timeout_s=self.chance.choice((0.2, 5.0, None)),
            partitions_refresh_s=0.5,
            close_timeout_s=1.0,
        )
        producer: Producer[bytes] | None = None
        with suppress(ClientError, TimeoutError):
            async with self._patience() if self.chance.randrange(2) else asyncio.timeout(None):
                producer = await opening()
        if producer is None:
            return
        ways = (self._send_some, self._send_without_waiting, self._give_up_sending, self._flush)
        for _ in range(self.chance.randrange(DEEDS_A_LIFE)):
            await self.chance.choice(ways)(producer)
        closing = asyncio.create_task(_closed(producer))
        if self.chance.randrange(2):
            await self._send_some(producer)
        await closing
        await self._expect_closed(producer.send(b"late"))
        self.deeds += 1

    async def _send_some(self, producer: Producer[bytes]) -> None:
        await asyncio.gather(*[self._send_one(producer) for _ in range(4)])

    async def _send_one(self, producer: Producer[bytes]) -> None:
        """Send a message, sometimes one that is too large."""
        number, payload = self._next()
        try:
            await producer.send(payload)
        except MessageTooLarge:
            if len(payload) <= ENTRY_BYTES_MAX:
                raise InvariantViolated(f"{len(payload)} bytes are too large") from None
            self.refused.add(number)
        except ClientError:
            pass
        else:
            self.stored.add(number)

    def _next(self) -> tuple[int, bytes]:
        self.number += 1
        payload = b"%d" % self.number
        if self.chance.random() < 0.1:
            payload = payload.ljust(ENTRY_BYTES_MAX + 100)
        return self.number, payload

    async def _send_without_waiting(self, producer: Producer[bytes]) -> None:
        for _ in range(self.chance.randrange(4)):
            with suppress(MessageTooLarge, ProducerQueueFull, ClientError):
                producer.send_nowait(self._next()[1])

    async def _give_up_sending(self, producer: Producer[bytes]) -> None:
        with suppress(TimeoutError):
            async with self._patience():
                await self._send_some(producer)

    async def _flush(self, producer: Producer[bytes]) -> None:
        with suppress(ClientError):
            await producer.ready()
            await producer.flush()

    async def _expect_closed(self, call: Awaitable[object]) -> None:
        try:
            await call
        except Closed:
            return
        raise InvariantViolated("what is closed does what it is asked to do")

    # Those who read

    async def _consume(self, client: Client) -> None:
        """Receive until another task closes the consumer."""
        consumer: Consumer[bytes] | None = None
        with suppress(ClientError, TimeoutError):
            async with self._patience():
                consumer = await client.consumer(
                    self.topic(), "careless", type="shared", topics_refresh_s=0.5
                )
        if consumer is None:
            return
        closing = asyncio.create_task(self._close_later(consumer.close))
        with suppress(ClientError):  # what ends it otherwise
            async for message in consumer:
                consumer.ack(message)
        await closing
        await self._expect_closed(consumer.receive_many(max_wait_s=0.01))
        await self._expect_closed(consumer.receive())
        await self._expect_closed(consumer.seek(EARLIEST))
        self.deeds += 1

    async def _read(self, client: Client) -> None:
        """Read from a time on until another task closes the reader."""
        start = self.chance.choice((EARLIEST, datetime.fromtimestamp(0, UTC)))
        reader: Reader[bytes] | None = None
        with suppress(ClientError, TimeoutError):
            async with self._patience():
                reader = await client.reader(self.topic(), start)
        if reader is None:
            return
        closing = asyncio.create_task(self._close_later(reader.close))
        with suppress(ClientError):
            async for _ in reader:
                pass
        await closing
        await self._expect_closed(reader.read())
        await self._expect_closed(reader.has_message_available())

    async def _view(self, client: Client) -> None:
        """Refresh a view while another task closes it."""
        view: TableView[bytes] | None = None
        with suppress(ClientError, TimeoutError):
            async with self._patience():
                view = await client.table_view(self.topic())
        if view is None:
            return
        closing = asyncio.create_task(self._close_later(view.close))
        with suppress(ClientError):
            while not closing.done():
                await view.refresh()
                await self.pause(PATIENCE_S_MAX / 5)
        async for _ in view:
            raise InvariantViolated("a view that is closed changes")
        await closing
        await self._expect_closed(view.refresh())

    async def _copy(self, client: Client) -> None:
        """Copy a partition's entries, and give up."""
        topic = str(TopicName.parse(self.topic()).partition(self.chance.randrange(PARTITIONS)))
        with suppress(ClientError, TimeoutError):
            opening = client.entries(topic, read_ahead_messages=2, timeout_s=LIVE_S)
            async with self._patience() if self.chance.randrange(2) else asyncio.timeout(None):
                entries = await opening
            async with asyncio.timeout(self.chance.random() * 2 * LIVE_S), entries:
                while await entries.read(max_messages=2):
                    await self.pause(RETRY_S)

    async def _close_later(self, close: Callable[[], Awaitable[object]]) -> None:
        await self.pause(1.0)
        await close()

    # One who matches names that the broker does not match for it

    async def _match(self, client: Client) -> None:
        """A topic that comes later is found all the same."""
        pattern = re.compile(f"{self.namespace()}/(late|{LONG_NAME}).*")
        opening: Any = partial(client.consumer, pattern, "matching", topics_refresh_s=RETRY_S)
        consumer = await opened(opening)
        await self.pause(LIVE_S / 2)
        producer = await opened(partial(client.producer, self.topic("late"), send_timeout_s=None))
        await producer.send(b"late")
        await self._ends(consumer.receive)
        await producer.close()
        await consumer.close()
        self.deeds += 1

    # Dead letters that cannot be posted for a while

    async def _bury(self, client: Client) -> None:
        """The topic for dead letters was terminated: what cannot be published there is delivered
        again until an operator has made the topic anew."""
        box = self.topic("box")
        await opened(partial(client.producer, box))
        name = TopicName.parse(box)
        await self.stage.have_owner(box, lambda each: each.administration.terminate_topic(name))
        policy = DeadLetterPolicy(1, dead_letter_topic=box, initial_subscription="undertaker")
        opening: Any = partial(
            client.consumer,
            self.topic("letters"),
            "refusing",
            type="shared",
            initial_position="earliest",
            nack_delay_s=0.1,
            dead_letters=policy,
        )
        consumer = await opened(opening)
        async with await opened(
            partial(client.producer, self.topic("letters"), send_timeout_s=None, batching=None)
        ) as producer:
            for number in range(LETTERS):
                await producer.send(b"%d" % number)
        refusing = asyncio.create_task(_refuse_all(consumer))
        await self.pause(LIVE_S)
        await self.stage.have_owner(box, partial(_deleted, name=name))
        undertaker: Any = partial(
            client.consumer, box, "undertaker", type="shared", initial_position="earliest"
        )
        digger = await opened(undertaker)
        while len(self.buried) < LETTERS:
            try:
                async with asyncio.timeout(CALM_S_MAX):
                    self.buried.add((await digger.receive()).data)
            except TimeoutError:
                raise InvariantViolated(f"of {LETTERS} letters came {self.buried}") from None
        refusing.cancel()
        await digger.close()
        await consumer.close()

    # One who leaves

    async def _leave_in_the_dark(self) -> None:
        """A client closes while nothing that it sends arrives, and has much to send."""
        cluster = self.stage.cluster
        network = cluster.world.network
        fronts = [each.name for each in cluster.proxies or cluster.brokers]
        leaver = await opened(partial(_entered, cluster.client("leaver")))
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(LIVE_S):
                producer = await leaver.producer(self.topic("left"), batching=None)
                for front in fronts:
                    network.cut("leaver", front, is_one_way=True)
                for _ in range(UNSENT_BYTES // ENTRY_BYTES_MAX):
                    producer.send_nowait(bytes(ENTRY_BYTES_MAX))
        try:
            async with asyncio.timeout(CLOSING_S_MAX):
                await leaver.close()
        except TimeoutError:
            raise InvariantViolated("a client that reaches no broker does not close") from None
        finally:
            for front in fronts:
                network.heal("leaver", front)

    async def _quit(self) -> None:
        """A client closes while its messages wait for brokers that it has not asked yet: each
        message is stored, or fails."""
        quitter = await opened(partial(_entered, self.stage.cluster.client("quitter")))
        with suppress(ClientError):
            producer = await quitter.producer(self.topic(), lazy_start_partitioned_producers=True)
            sending = [asyncio.create_task(self._send_one(producer)) for _ in range(PARTITIONS)]
            await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.01)))
            await asyncio.gather(quitter.close(), *sending)
            await self._expect_closed(producer.send(b"late"))
        await quitter.close()

    # One who asks for what is not there, and for more than there is

    async def _look_around(self, client: Client) -> None:
        """A namespace that is not there has no topics; a broker says whether it is well."""
        with suppress(ClientError):
            if topics := await client.topics("public/nowhere", "all"):
                raise InvariantViolated(f"a namespace that is not there has {topics}")
        cluster = self.stage.cluster
        with suppress(GemingaError, HostCrashed):
            await cluster.do(self.chance.choice(cluster.brokers), lambda each: each.check_health())

    async def _grow(self, client: Client, other: Client) -> None:
        """A partition that the topic does not have yet takes no producer. When it comes, another
        client's producer may take it under the name that the topic's producer has on the other
        partitions; as soon as it is gone, the topic's producer gets the partition."""
        opening = partial(
            client.producer,
            self.topic("growing"),
            name="grower",
            send_timeout_s=None,
            partitions_refresh_s=RETRY_S,
        )
        grower = await opened(opening)
        name = TopicName.parse(self.topic("growing"))
        new = partial(other.producer, str(name.partition(PARTITIONS)), name="grower")
        with suppress(ClientError):
            await new()
            raise InvariantViolated("a partition that is not there takes a producer")
        await self._ends(partial(self._add_a_partition, name))
        in_the_way: Producer[bytes] | None = None
        with suppress(ProducerBusy):  # the other was quicker
            in_the_way = await opened(new, ProducerBusy)
        await self.pause(4 * RETRY_S)
        if in_the_way is not None:
            await in_the_way.close()
        await self.until(
            lambda: grower.partitions > PARTITIONS, "a producer gets the partition that was added"
        )
        await grower.close()

    async def _add_a_partition(self, name: TopicName) -> None:
        """As an operator does, again until it is done."""
        async with self.stage.cluster.world.host("setup").coordination() as setup:
            topics = PartitionedTopics(setup)
            while True:
                with suppress(GemingaError):
                    if await topics.partitions(name) > PARTITIONS:
                        return
                    await topics.grow(name, PARTITIONS + 1)
                await asyncio.sleep(RETRY_S)

    # In the end

    async def finish(self) -> None:
        """What was stored is there, what was refused is not."""
        client, read = self.stage.clients[0], set[int]()
        reader = await opened(partial(client.reader, self.topic(), EARLIEST))
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM_S_MAX):
                while not self.stored <= read:
                    message = await reader.read()
                    if message.data.strip().isdigit():
                        read.add(int(message.data))
        await reader.close()
        if missing := sorted(self.stored - read)[:5]:
            raise InvariantViolated(f"stored, and not there: {missing}")
        if there := sorted(self.refused & read)[:5]:
            raise InvariantViolated(f"refused, and there: {there}")


async def _closed(producer: Producer[bytes]) -> None:
    with suppress(ClientError):
        await producer.close()


async def _entered(opening: Awaitable[Client]) -> Client:
    return await opening


async def _refuse_all(consumer: Consumer[bytes]) -> None:
    """Never ends."""
    while True:
        consumer.nack(await consumer.receive())


async def _deleted(broker: Broker, *, name: TopicName) -> bool:
    """It is when there is no such topic (any more)."""
    with suppress(TopicNotFound):
        await broker.topics.delete(name, force=True)
    return True
