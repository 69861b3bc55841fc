"""Clients whose topic an operator deletes, or ends, while they open, use and wait for it. Topics of
this namespace do not come back by being asked for.

Whatever a client had of a topic that was deleted is over, and says why: each call from then on
fails by that, and none hangs. What had the topic beside others is over, too. A topic that was ended
takes nothing more, and what reads it waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial

from tests.simulation.features.stage import (
    CALM_S_MAX,
    LIVE_S,
    RETRY_S,
    Errand,
    Weather,
    opened,
)

from geminga import (
    EARLIEST,
    Client,
    ClientError,
    Closed,
    Consumer,
    EntryProducer,
    Producer,
    Reader,
    TableView,
    TopicNotFound,
    TopicTerminated,
    connect,
)
from geminga_broker import errors
from geminga_broker.broker import Broker
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import AutoTopicCreation, Policies
from geminga_scenarios.cluster import BROKER_PORT
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.host import Host

ROUNDS_MAX = 3
# In another namespace, which is one of another errand: another broker may serve it.
FAR = "persistent://public/careless/far"
GUESTS_MAX = 20
NO_ATTRIBUTES = b""


class Bereft(Errand):
    """A topic a round, beside one that stays."""

    name = "bereft"
    policies = Policies(auto_topic_creation_override=AutoTopicCreation(allowed=False))

    async def open(self) -> None:
        """The topics that stay."""
        self.is_over = False
        await self._made(self.topic("lasting"))
        await self._made(FAR)

    async def live(self) -> None:
        """Work round by round; beside that, a consumer that has not opened all topics yet."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._be_bereft_while_opening())
            tasks.create_task(self._rounds())

    async def _rounds(self) -> None:
        end_s = self.stage.now_s() + LIVE_S
        for number in range(ROUNDS_MAX):
            if self.stage.now_s() < end_s:
                await self._round(self.topic(f"short-{number}"))

    async def finish(self) -> None:
        """The topic that stays works."""
        client = self.stage.clients[0]
        async with await opened(
            partial(client.producer, self.topic("lasting"), send_timeout_s=None)
        ) as producer:
            await producer.send(b"last")

    async def _made(self, topic: str) -> None:
        name = TopicName.parse(topic)

        async def make(broker: Broker) -> bool:
            with suppress(errors.TopicExists):  # an attempt whose answer was lost has made it
                await broker.topics.create(name, {})
            return True

        await self.stage.have_owner(topic, make)

    async def _round(self, topic: str) -> None:
        await self._made(topic)
        client, other = self.stage.clients
        is_deleted = bool(self.chance.randrange(3))
        writers = await self._writers(client, topic)
        readers = await self._readers(other, topic)
        async with asyncio.TaskGroup() as tasks:
            opening = [
                tasks.create_task(self._open_meanwhile(each, topic)) for each in (client, other)
            ]
            await self.pause(1.0)
            await (self._deleted(topic) if is_deleted else self._terminated(topic))
        late = [each for done in opening for each in done.result()]
        reason = TopicNotFound if is_deleted else TopicTerminated
        await asyncio.gather(*[self._fails(each, reason) for each in writers])
        if is_deleted:
            await asyncio.gather(*[self._fails(each, reason) for each in readers])
        self.deeds += 1
        for each in (*self._open, *late):
            with suppress(ClientError):
                await each()

    async def _writers(self, client: Client, topic: str) -> list[Callable[[], Awaitable[object]]]:
        """What fails when the topic takes nothing any more."""
        producer: Producer[bytes] = await opened(
            partial(client.producer, topic, send_timeout_s=None)
        )
        entries: EntryProducer = await opened(
            partial(client.entry_producer, topic, name="entries", send_timeout_s=None)
        )
        self._open: list[Callable[[], Awaitable[object]]] = [producer.close, entries.close]
        numbers = iter(range(1 << 30))

        async def flush() -> None:
            producer.send_nowait(b"not waited for")
            await producer.flush()

        async def send_entry() -> None:
            await entries.send([b"entry"], [NO_ATTRIBUTES], next(numbers))
            await self.pause(RETRY_S)

        writers: list[Callable[[], Awaitable[object]]] = [
            *(partial(producer.send, b"waited for"), flush, send_entry, entries.flush)
        ]
        return writers[self.chance.randrange(2) :]

    async def _readers(self, client: Client, topic: str) -> list[Callable[[], Awaitable[object]]]:
        """What fails when the topic is gone."""
        consumer: Consumer[bytes] = await opened(partial(client.consumer, topic, "consumer"))
        both: Consumer[bytes] = await opened(
            partial(client.consumer, [topic, self.topic("lasting")], "both")
        )
        reader: Reader[bytes] = await opened(partial(client.reader, topic, EARLIEST))
        view: TableView[bytes] = await opened(partial(client.table_view, topic))
        changes = aiter(view)
        self._open += [consumer.close, both.close, reader.close, view.close]
        return [
            consumer.receive,
            partial(consumer.receive_many, max_wait_s=RETRY_S),
            both.receive,
            partial(both.seek, EARLIEST),
            reader.read,
            partial(_next, changes),
            view.refresh,
        ]

    async def _open_meanwhile(
        self, client: Client, topic: str
    ) -> list[Callable[[], Awaitable[object]]]:
        """Open something again and again, till that fails; what was opened may be over at once."""
        closes: list[Callable[[], Awaitable[object]]] = []
        topics = [topic, self.topic("lasting")]
        end_s = self.stage.now_s() + 2.0
        with suppress(ClientError):
            while self.stage.now_s() < end_s and len(closes) < GUESTS_MAX:
                guest = f"guest-{len(closes)}-{self.chance.random()}"
                consumer = await client.consumer(topics, guest)
                closes.append(consumer.close)
                await self.pause(2.0 / GUESTS_MAX)
        return closes

    async def _be_bereft_while_opening(self) -> None:
        """A client that opens two topics at once is told that one is gone, though the broker of the
        other one does not answer."""
        cluster, network = self.stage.cluster, self.stage.cluster.world.network
        near = self.topic("near")
        await self._made(near)
        answering, silent = self._owner(near), self._owner(FAR)
        if cluster.proxies or answering is None or silent in (answering, None):
            return
        host = cluster.world.host("waiting")
        client = await connect(
            f"pulsar://{answering.name}:{BROKER_PORT}",
            network=cluster.network_of(host),
            clock=host.clock,
            random=host.random,
        )
        network.cut("waiting", silent.name)
        try:
            opening = asyncio.create_task(_consuming(client, [near, FAR]))
            await asyncio.sleep(RETRY_S)
            await self._deleted(near)
            async with asyncio.timeout(CALM_S_MAX):
                await opening
        except TopicNotFound:
            self.deeds += 1
        except ClientError as error:
            if isinstance(error, Closed) or self.stage.weather is Weather.CALM:
                raise InvariantViolated(
                    f"{near} was deleted, and its client told {error!r}"
                ) from error
        finally:
            network.heal("waiting", silent.name)
            await client.close()

    def _owner(self, topic: str) -> Host | None:
        """Where the broker is that owns it."""
        name, cluster = TopicName.parse(topic), self.stage.cluster
        for host in cluster.brokers:
            broker = cluster.broker(host)
            if broker is not None and broker.ownership.owns(name):
                return host
        return None

    async def _fails(
        self, call: Callable[[], Awaitable[object]], reason: type[ClientError]
    ) -> None:
        """From some time on it fails, each time by ``reason``."""
        try:
            async with asyncio.timeout(CALM_S_MAX):
                while True:
                    try:
                        await call()
                    except reason:
                        break
                    except Closed as error:
                        raise InvariantViolated(f"{call} says that it was closed") from error
                    except ClientError:
                        pass
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise InvariantViolated(f"{call} never fails by {reason.__name__}") from None
        try:
            await call()
        except reason:
            return
        raise InvariantViolated(f"{call} failed by {reason.__name__}, and does not any more")

    async def _deleted(self, topic: str) -> None:
        name = TopicName.parse(topic)

        async def delete(broker: Broker) -> bool:
            with suppress(errors.TopicNotFound):
                await broker.topics.delete(name, force=True)
            return True

        await self.stage.have_owner(topic, delete)

    async def _terminated(self, topic: str) -> None:
        name = TopicName.parse(topic)
        await self.stage.have_owner(topic, lambda each: each.administration.terminate_topic(name))


async def _consuming(client: Client, topics: list[str]) -> None:
    await client.consumer(topics, "waiting")


async def _next(changes: AsyncIterator[object]) -> None:
    await anext(changes)
