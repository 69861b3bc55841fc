"""Where features are tried: the cluster, its clients, what an operator asks of brokers, and what a
feature's errand is.

Each errand has a namespace and topics of its own, a model that says what its clients must see, and
no part in those of others: a seed tells several of them side by side.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from random import Random
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

from geminga import Client, ClientError, Message, MessageId, Producer
from geminga_broker.broker import Broker
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.clock import Clock
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster
from geminga_simulation.errors import HostCrashed, InvariantViolated

AnswerT = TypeVar("AnswerT")

# So long faults come, about.
LIVE_S = 6.0
RETRY_S = 0.3
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.005, 1.0
# Without faults nothing takes so long: a minute passes before a connection gone dark is noticed.
CALM_S_MAX = 200.0


class Weather(Enum):
    """What happens to the cluster: nothing, every part is told to end and started again, or all
    that is on the menu."""

    CALM = "calm"
    CHANGE = "change"
    STORM = "storm"


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster in some weather, and the clients that all errands share."""

    cluster: Cluster
    clients: tuple[Client, Client]
    weather: Weather
    chance: Random

    async def ask_owner(
        self, topic: str, ask: Callable[[Broker], Awaitable[AnswerT]]
    ) -> AnswerT | None:
        """Ask the broker that owns ``topic``, as REST would find it; ``None`` where none is found
        now. Raises what ``ask`` raises, and ``HostCrashed`` where the broker ends: what was asked
        for may be done then, or not."""
        name = TopicName.parse(topic)
        for host in self.cluster.brokers:
            broker = self.cluster.broker(host)
            if broker is None:
                continue
            if broker.ownership.owns(name):
                return await host.run(_coroutine(ask, broker))
        await self._look_up(name)
        return None

    async def _look_up(self, name: TopicName) -> None:
        """Follow a lookup from broker to broker, until one has acquired what has no owner."""
        host = next((each for each in self.cluster.brokers if self.cluster.broker(each)), None)
        is_authoritative = False
        for _ in self.cluster.brokers:
            broker = None if host is None else self.cluster.broker(host)
            if host is None or broker is None:
                return
            try:
                looking = broker.ownership.owner(name, authoritative=is_authoritative)
                owner = await host.run(looking)
            except (GemingaError, HostCrashed):
                return
            if not owner.is_redirect:
                return
            is_authoritative = owner.is_authoritative
            host = self.cluster.world.hosts[urlsplit(owner.broker_url).hostname or ""]

    async def have_owner(self, topic: str, ask: Callable[[Broker], Awaitable[AnswerT]]) -> AnswerT:
        """``ask_owner`` until it is done; only for requests that may be carried out twice."""
        deadline_s = asyncio.get_running_loop().time() + CALM_S_MAX
        while asyncio.get_running_loop().time() < deadline_s:
            with suppress(GemingaError, HostCrashed):
                answer = await self.ask_owner(topic, ask)
                if answer is not None:
                    return answer
            await asyncio.sleep(RETRY_S)
        raise InvariantViolated(f"no broker does what it is asked to do to {topic}")

    @property
    def clock(self) -> Clock:
        """The clock of a client's host: where clocks do not jump, all hosts show one time."""
        return self.cluster.world.host("client").clock

    def now_s(self) -> float:
        """The virtual time."""
        return asyncio.get_running_loop().time()


async def _coroutine(ask: Callable[[Broker], Awaitable[AnswerT]], broker: Broker) -> AnswerT:
    return await ask(broker)


class Errand(ABC):
    """What some clients do with one feature, and what they must see.

    ``open`` comes before all faults, ``live`` while they come, for about ``LIVE_S``; ``calm`` and
    ``finish`` when all is well again, with brokers that begin anew between: they raise
    ``InvariantViolated`` where the model is contradicted.
    """

    # Its name; that of its namespace, too.
    name: ClassVar[str]
    policies: ClassVar[Policies] = Policies()
    # Whether clocks that jump would make it say nothing.
    goes_by_time: ClassVar[bool] = False

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.chance = Random(stage.chance.random())
        # How often what it is about happened, for those who doubt that it was about anything.
        self.deeds = 0

    @classmethod
    def namespace(cls) -> NamespaceName:
        """Where its topics are."""
        return NamespaceName("public", cls.name)

    def topic(self, local: str = "topic") -> str:
        """The whole name of one of its topics."""
        return f"persistent://{self.namespace()}/{local}"

    @abstractmethod
    async def open(self) -> None:
        """Make what must be there before anything happens."""

    @abstractmethod
    async def live(self) -> None:
        """Do what the feature is for, whatever happens."""

    async def calm(self) -> None:  # noqa: B027 -- most have nothing to do then
        """All is well; in a moment brokers may be killed, or told to end, and start anew."""

    @abstractmethod
    async def finish(self) -> None:
        """Look at what came of it."""

    async def pause(self, seconds_max: float) -> None:
        """Wait for some time."""
        await asyncio.sleep(self.chance.random() * seconds_max)

    async def until(self, is_reached: Callable[[], bool], what: str) -> None:
        """Wait in calm times for what must come. Raises ``InvariantViolated``."""
        end_s = self.stage.now_s() + CALM_S_MAX
        while not is_reached():
            if self.stage.now_s() > end_s:
                raise InvariantViolated(f"never: {what}")
            await asyncio.sleep(RETRY_S)

    async def in_the_end(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask in calm times until it is done: a connection may break even then. Raises
        ``InvariantViolated``."""
        end_s = self.stage.now_s() + CALM_S_MAX
        while True:
            try:
                return await ask()
            except ClientError as error:
                if not error.retry or self.stage.now_s() > end_s:
                    raise InvariantViolated(f"not even in calm times: {error!r}") from error
            await asyncio.sleep(RETRY_S)

    async def keep(self, topic: str, subscription: str = "keeper") -> None:
        """Open a subscription that keeps everything: what all subscriptions have passed is
        trimmed."""
        client = self.stage.clients[0]
        opening = partial(client.consumer, topic, subscription, initial_position="earliest")
        await (await opened(opening)).close()


async def opened(opening: Callable[[], Awaitable[AnswerT]], *fatal: type[ClientError]) -> AnswerT:
    """A producer, consumer or reader, however often no broker takes it at first, and however often
    it is given up before one does, sooner at first. Raises what is ``fatal``."""
    deadline_s = asyncio.get_running_loop().time() + CALM_S_MAX
    patience_s = PATIENCE_S_MIN
    while True:
        try:
            async with asyncio.timeout(patience_s if patience_s < PATIENCE_S_MAX else None):
                return await opening()
        except TimeoutError:
            patience_s *= 2
        except ClientError as error:
            if isinstance(error, fatal):
                raise
            if asyncio.get_running_loop().time() > deadline_s:
                raise InvariantViolated(f"never opened: {error!r}") from error
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def taking(
    receive: Callable[[], Awaitable[Message[bytes]]], came: Callable[[Message[bytes]], None]
) -> AsyncGenerator[None]:
    """Have ``came`` told of messages as they arrive, meanwhile: one that is left in a consumer's
    queue while something is confirmed would seem to come later than that."""

    async def take() -> None:
        while True:
            came(await receive())

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(take())
        yield
        task.cancel()


@dataclass(slots=True)
class Log:
    """What one producer sends to one topic, numbered from 0, and how far the receipts have come.

    With the times, in milliseconds since 1970 as clocks show them that do not jump.
    """

    clock: Clock
    sent_ms: list[int] = field(default_factory=list[int])
    receipts_ms: list[int] = field(default_factory=list[int])
    is_over: bool = False
    failed: str = ""

    @property
    def sent(self) -> int:
        """How many messages were sent."""
        return len(self.sent_ms)

    @property
    def confirmed(self) -> int:
        """How many messages are known to be stored."""
        return len(self.receipts_ms)

    def send(self, producer: Producer[bytes], payload: bytes | None = None) -> None:
        """Send the next message: its number, where it is to be nothing else."""
        number = self.sent
        self.sent_ms.append(self.clock.wall_ms())
        producer.send_nowait(payload or b"%d" % number, partial(self._receipt, number))

    def _receipt(
        self, number: int, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        """Receipts come in the order of sending."""
        del message_id
        if error is not None or number != self.confirmed:
            self.failed = self.failed or f"receipt of {number} after {self.confirmed}: {error!r}"
        self.receipts_ms.append(self.clock.wall_ms())
