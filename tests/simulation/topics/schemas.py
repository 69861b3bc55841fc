"""What clients and operators do with the schemas of topics, through several brokers at once, and
what they must see in the end."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from typing import TypeVar

from tests.simulation.clients.errands import again
from tests.simulation.storage.log_book import now_s
from tests.simulation.topics.schema_history import (
    ACCEPTED,
    NAMES_BY_DEFINITION,
    NAMES_BY_DIGEST,
    REFUSED,
    History,
    definition_of,
    names,
)

from geminga import (
    EARLIEST,
    AutoConsumeSchema,
    BytesSchema,
    Client,
    ClientError,
    IncompatibleSchema,
)
from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas import errors
from geminga_broker.schemas.registry import SchemaRegistry, schema_id
from geminga_broker.schemas.rules.definitions import Schema
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.schemas import schema_path
from geminga_runtime.coordination import CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster
from geminga_simulation.errors import HostCrashed, InvariantViolated
from geminga_simulation.histories.linearizability import Operation
from geminga_simulation.host import Host

AnswerT = TypeVar("AnswerT")

PARTITIONS = 3
RETRY_S = 0.3
# Without faults nothing takes so long: a minute passes before a connection gone dark is noticed.
CALM_S_MAX = 200.0
VERSION = struct.Struct(">q")
# Who sends a message within so long has asked one broker once.
UNBROKEN_S_MAX = 0.05
# A process that writes a topic's record again and again does so for so long.
STRIFE_S_MIN, STRIFE_S_MAX = 0.5, 1.5
STRIVES_EACH_S = 0.3
EXPIRY_PROBABILITY = 0.3
MEDDLER_RESTS_S = 0.001


class Registries:
    """The schemas of ``cluster``, asked for at its brokers, as REST does."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self.cluster = cluster
        self.chance = chance

    async def ask(
        self, host: Host, what: Callable[[SchemaRegistry], Awaitable[AnswerT]]
    ) -> AnswerT:
        """Ask the registry of this broker. Raises what that raises, and ``HostCrashed``."""
        broker = self.cluster.broker(host)
        if broker is None:
            raise HostCrashed(host.name)
        registry = broker.topics.services.schemas

        async def asked() -> AnswerT:
            return await what(registry)

        return await host.run(asked())

    async def have(
        self, what: Callable[[SchemaRegistry], Awaitable[AnswerT]], host: Host | None = None
    ) -> AnswerT:
        """``ask`` this broker, or any, until it is done; only for requests that may be made
        twice."""
        deadline_s = asyncio.get_running_loop().time() + CALM_S_MAX
        while True:
            try:
                return await self.ask(host or self.chance.choice(self.cluster.brokers), what)
            except (GemingaError, HostCrashed) as error:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise InvariantViolated(f"schemas cannot be asked for: {error!r}") from error
            await asyncio.sleep(RETRY_S)

    def any_broker(self) -> Host:
        """One of them, which may be down."""
        return self.chance.choice(self.cluster.brokers)


class Orders:
    """A topic of several partitions with one schema, whose ``history`` is noted. What was sent
    with which schema is known, and read in the end."""

    def __init__(self, registries: Registries, topic: TopicName) -> None:
        self.topic = topic
        self.history = History()
        self.refusals = 0
        self._registries = registries
        self._chance = registries.chance
        self._cluster = registries.cluster
        # How many versions there are at most: those with greater numbers are asked for in vain.
        self._versions = 0
        self._sent = 0
        # What was stored, by its payload's number: the name of its definition.
        self._stored: dict[int, str] = {}

    def _known_s(self, *hosts: Host) -> float:
        """A broker answers of what it has heard of ZooKeeper, which may be late; one that is not
        there yet will come to a follower that lags, if there is one."""
        follower = self._cluster.place.zookeeper.follower
        late_s = now_s() if follower is None else follower.since_s
        known = [self._cluster.knows_until_s(each.name) for each in hosts]
        return min(now_s(), *[late_s if each == -inf else each for each in known])

    # What clients do

    async def send(self, client: Client) -> None:
        """Come to a partition with a schema, and send a message if it is let in."""
        name, asked_s = self._chance.choice(names()), self._known_s(*self._cluster.brokers)
        put = partial(self.history.add, "client", asked_s)
        partition = self.topic.partition(self._chance.randrange(PARTITIONS))
        try:
            await self._send(client, partition, name, put)
        except IncompatibleSchema:
            self.refusals += 1
            put(now_s(), ("put", name, REFUSED))
        except ClientError:
            put(inf, ("put", name, None))
        if now_s() > asked_s + UNBROKEN_S_MAX:
            again = Operation("client", asked_s, inf, ("put", name, None))
            self.history.brought_again.append(again)

    async def _send(
        self,
        client: Client,
        partition: TopicName,
        name: str,
        put: Callable[[float, Hashable], None],
    ) -> None:
        """Raises the ``ClientError`` for which no producer is let in."""
        producer = await client.producer(
            str(partition), schema=BytesSchema(definition_of(name)), batching=None
        )
        put(now_s(), ("put", name, ACCEPTED))
        self._versions += 1
        number = self._sent
        self._sent += 1
        with suppress(ClientError):
            await producer.send(json.dumps({"amount": number}).encode())
            self._stored[number] = name
        with suppress(ClientError):
            await producer.close()

    async def look(self, client: Client) -> None:
        """Ask for the newest version, or for one that may be there."""
        asked = self._chance.choice((None, *range(self._versions + 1)))
        asked_s = self._known_s(*self._cluster.brokers)
        version = None if asked is None else VERSION.pack(asked)
        with suppress(ClientError):
            info = await client.schema(str(self.topic), version)
            told = None if info is None else NAMES_BY_DEFINITION[info.definition]
            self.history.add("looker", asked_s, now_s(), ("get", asked, told))

    # What operators do at any broker

    async def upload(self) -> None:
        """Store a schema by a broker's own method."""
        host, name = self._registries.any_broker(), self._chance.choice(names())
        asked_s = self._known_s(host)
        schema = Schema(SchemaType.JSON, definition_of(name).definition)
        try:
            told: Hashable = await self._registries.ask(
                host, lambda each: each.put(self.topic, schema, SchemaStrategy.FULL)
            )
        except errors.IncompatibleSchema:
            told = REFUSED
        except (GemingaError, HostCrashed):
            self.history.add(host.name, asked_s, inf, ("put", name, None))
            return
        self._versions += 1
        self.history.add(host.name, asked_s, now_s(), ("put", name, told))

    async def race(self) -> None:
        """Two operators at once."""
        await asyncio.gather(self.upload(), self.upload())

    async def delete(self) -> None:
        """Delete what there is: versions from then on have greater numbers."""
        host, asked_s = self._registries.any_broker(), now_s()
        try:
            told = await self._registries.ask(host, lambda each: each.delete(self.topic))
        except (GemingaError, HostCrashed):
            self.history.add(host.name, asked_s, inf, ("delete", None, None))
            return
        self._versions += 1
        self.history.add(host.name, asked_s, now_s(), ("delete", None, told))

    # In the end

    async def finish(self, client: Client) -> int:
        """Ask each broker for all versions, and read what was sent; returns how much that was."""
        for host in self._cluster.brokers:
            asked_s = now_s()
            versions = await self._registries.have(lambda each: each.versions(self.topic), host)
            told = {each.version: NAMES_BY_DEFINITION[each.info.definition] for each in versions}
            for number in range(self._versions + 1):
                what = ("get", number, told.get(number))
                self.history.add(host.name, asked_s, now_s(), what)
        locator = await self._registries.have(lambda each: each.locator(self.topic))
        named = () if locator is None else locator.versions
        numbers = [each.version for each in named]
        if numbers != list(range(len(named))):
            raise InvariantViolated(f"the record of {self.topic} names the versions {numbers}")
        self.history.check(tuple(NAMES_BY_DIGEST.get(each.hash) for each in named))
        await self._read_all(client)
        return len(self._stored)

    async def _read_all(self, client: Client) -> None:
        """Each message names the schema that it was sent with until that schema is deleted: then
        the message has no value."""
        missing = dict(self._stored)
        reader = await again(
            partial(client.reader, str(self.topic), EARLIEST, schema=AutoConsumeSchema())
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM_S_MAX):
                while missing:
                    message = await reader.read()
                    number = json.loads(message.data)["amount"]
                    name = missing.pop(number, None)
                    if name is None:
                        continue  # it may have been stored or not, or came twice
                    version = message.schema_version
                    assert version is not None
                    info = await again(partial(client.schema, str(self.topic), version))
                    if info is not None and info.definition != definition_of(name).definition:
                        raise InvariantViolated(f"{number} was sent with {name}, and has {info}")
                    value: object = None
                    with suppress(ValueError):  # its schema is not known any more
                        value = message.value
                    if value != (None if info is None else {"amount": number}):
                        raise InvariantViolated(f"{number} was sent with {name}, and is {value!r}")
        await reader.close()
        if missing:
            raise InvariantViolated(f"stored, and not read: {missing}")


class Scrapped:
    """A topic whose schemas are stored and all deleted for good by several brokers at once. What
    there is meanwhile cannot be told; in the end there is nothing, and numbers begin again."""

    def __init__(self, registries: Registries, topic: TopicName) -> None:
        self.topic = topic
        self._registries = registries
        self._chance = registries.chance

    async def upload(self) -> None:
        """Store a schema, which may be refused for one that is being deleted."""
        name = self._chance.choice(names())
        with suppress(GemingaError, HostCrashed):
            await self._registries.ask(self._registries.any_broker(), self._put(name))

    async def scrap(self) -> None:
        """Have two brokers delete all versions, as when an operator does not wait long enough."""

        async def scrap() -> None:
            with suppress(GemingaError, HostCrashed):
                await self._registries.ask(
                    self._registries.any_broker(), lambda each: each.delete_all(self.topic)
                )

        await asyncio.gather(scrap(), scrap(), self.upload())

    async def look(self) -> None:
        """Ask for what there is: what is being deleted is left out."""
        with suppress(GemingaError, HostCrashed):
            versions = await self._registries.ask(
                self._registries.any_broker(), lambda each: each.versions(self.topic)
            )
            numbers = [each.version for each in versions]
            if numbers != sorted(set(numbers)):
                raise InvariantViolated(f"{self.topic} has the versions {numbers}")

    def _put(self, name: str) -> Callable[[SchemaRegistry], Awaitable[int]]:
        schema = Schema(SchemaType.JSON, definition_of(name).definition)
        return lambda registry: registry.put(self.topic, schema, SchemaStrategy.FULL)

    async def finish(self, client: Client) -> None:
        """Delete all as the deletion of its namespace does, and begin anew."""
        # The first that is told may find what another has begun to delete.
        await self._registries.have(lambda each: each.delete_all(self.topic))
        for host in self._registries.cluster.brokers:
            versions = await self._registries.have(lambda each: each.versions(self.topic), host)
            if versions:
                raise InvariantViolated(f"all are deleted, and {host.name} has {versions}")
        if (info := await again(partial(client.schema, str(self.topic)))) is not None:
            raise InvariantViolated(f"all are deleted, and a client finds {info}")
        name = self._chance.choice(names())
        number = await self._registries.have(self._put(name))
        info = await again(partial(client.schema, str(self.topic), VERSION.pack(0)))
        if number != 0 or info is None or info.definition != definition_of(name).definition:
            raise InvariantViolated(f"{name} is stored anew as {number}, and 0 is {info}")
        # Twice: the second time there is nothing, which is no error.
        for _ in range(2):
            await self._registries.have(lambda each: each.delete_namespace(self.topic.namespace))
        if await again(partial(client.schema, str(self.topic))) is not None:
            raise InvariantViolated(f"{self.topic.namespace} is gone, and has a schema")


async def strive(
    cluster: Cluster, topic: TopicName, act: Callable[[], Awaitable[object]], chance: Random
) -> None:
    """``act`` again and again while another process writes the record of the topic's schemas anew
    as it is, as a broker of another version may: a broker that changes it has to read it again.
    Sessions of brokers end in the midst of that."""
    host = cluster.world.host("broker-of-another-version")
    loop = asyncio.get_running_loop()
    end_s = loop.time() + chance.uniform(STRIFE_S_MIN, STRIFE_S_MAX)
    meddling = asyncio.create_task(_meddle(host, schema_path(schema_id(topic))))
    while loop.time() < end_s:
        acting = asyncio.create_task(_acted(act))
        await asyncio.sleep(chance.random() * STRIVES_EACH_S)
        if not acting.done() and chance.random() < EXPIRY_PROBABILITY:
            _expire_one(cluster, chance)
        await acting
    meddling.cancel()
    await asyncio.wait([meddling])


async def _acted(act: Callable[[], Awaitable[object]]) -> None:
    await act()


def _expire_one(cluster: Cluster, chance: Random) -> None:
    zookeeper = cluster.place.zookeeper
    brokers = {host.name for host in cluster.brokers}
    sessions = [each for each in zookeeper.sessions() if each.host in brokers]
    if sessions:
        session = chance.choice(sessions)
        cluster.world.note(f"the session of {session.host} expires in strife")
        zookeeper.expire(session)


async def _meddle(host: Host, path: str) -> None:
    """Never ends."""
    async with host.coordination() as session:
        while True:
            try:
                value, stat = await session.get(path)
                while True:
                    stat = await session.set(path, value, version=stat.version)
            except CoordinationError:  # it is not there, was changed, or cannot be asked for
                await asyncio.sleep(MEDDLER_RESTS_S)
