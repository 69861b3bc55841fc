"""The topics this broker serves: loaded on demand, once each, closed when their bundle goes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from geminga_broker.counting.durations import Durations
from geminga_broker.errors import (
    ServiceNotReady,
    StorageUnavailable,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
)
from geminga_broker.log.logs import Logs
from geminga_broker.log.nothing import NO_TEXTS
from geminga_broker.policies.dispatching import DispatchConfig
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.inactivity import Inactivity, is_over
from geminga_broker.policies.publishing import PublishConfig
from geminga_broker.policies.resolver import PolicyResolver, no_policies
from geminga_broker.subscriptions.gate import Gate, LimitOf
from geminga_broker.topics.config import TopicsConfig
from geminga_broker.topics.in_turn import InTurn
from geminga_broker.topics.non_persistent import NonPersistentTopic
from geminga_broker.topics.persistent import PersistentTopic
from geminga_broker.topics.producing.publish_rate import PublishRate
from geminga_broker.topics.totals import TopicTotals
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import Policies
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import NodeMissing
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

AnyTopic = PersistentTopic | NonPersistentTopic

# Topics whose rates are renewed before others get a turn: a topic takes a few microseconds.
TICK_TOPICS_MAX = 500
# Topics of which it is asked whether they are still ours before others get a turn: that takes some
# microseconds for each, and all bundles of a namespace may ask at the same time.
LOOKED_AT_TOPICS_MAX = 50
# So many topics are compacted at once by themselves: each holds its keys in memory meanwhile.
COMPACTIONS_AT_ONCE_MAX = 4
# So many topics are closed at once: each asks ZooKeeper and bookies a few questions, of which no
# more may wait than a session holds (65,536) or can be answered before they are given up (6 s). As
# quick as 500, which took 20 KB each meanwhile.
UNLOADS_AT_ONCE_MAX = 100


def _broker_rate(config: PublishConfig, clock: Clock) -> PublishRate | None:
    """What counts all that is published to a broker, where that is limited."""
    limits = config.broker_limits
    return None if limits.is_unlimited else PublishRate(limits, clock.monotonic())


def _broker_gate(config: DispatchConfig, clock: Clock) -> Gate | None:
    """What all that a broker dispatches must pass, where that is limited."""
    limit = config.broker_limit
    return None if limit.is_unlimited else Gate(limit, clock, limit_of=LimitOf.BROKER)


def _moved(name: TopicName) -> ServiceNotReady:
    return ServiceNotReady(f"this broker does not own {name}: look it up again")


class TopicDirectory(Service):
    """Topics by name. ``owns`` says whether a topic's bundle is this broker's now.

    What holds for a topic is said by ``policies``. When the directory closes, what its topics have
    to write may take as long as ``config`` says.
    """

    def __init__(
        self,
        logs: Logs,
        clock: Clock,
        *,
        owns: Callable[[TopicName], bool],
        policies: PolicyResolver | None = None,
        config: TopicsConfig | None = None,
    ) -> None:
        super().__init__()
        self._logs = logs
        self._clock = clock
        self._owns = owns
        self._policies = policies or PolicyResolver(PolicyConfig(log=logs.config), no_policies)
        self._broker_rate = _broker_rate(self._policies.config.publishing, clock)
        self._broker_gate = _broker_gate(self._policies.config.dispatching, clock)
        self._config = config or TopicsConfig()
        self._loading: dict[TopicName, asyncio.Future[None]] = {}
        self._topics: dict[TopicName, AnyTopic] = {}
        self.totals = TopicTotals()
        self.publish_durations = Durations()
        self.load_durations = Durations()
        self.loads_failed = 0
        # Topics that go with their namespace.
        self._doomed: set[TopicName] = set()
        # Topics that are being closed or deleted: to be loaded again, they must be gone first.
        self._leaving: dict[TopicName, asyncio.Future[None]] = {}
        self._unloads = InTurn(UNLOADS_AT_ONCE_MAX)

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close_all)

    @property
    def loaded(self) -> list[AnyTopic]:
        """Topics that are open now."""
        return list(self._topics.values())

    @property
    def loaded_count(self) -> int:
        """How many those are."""
        return len(self._topics)

    @property
    def loading_count(self) -> int:
        """How many are being loaded."""
        return len(self._loading)

    def non_persistent_in(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace that are open now: they are nowhere else."""
        return [
            name for name in self._topics if not name.is_persistent and name.namespace == namespace
        ]

    def find(self, name: TopicName) -> AnyTopic | None:
        """The topic if it is open."""
        return self._topics.get(name)

    async def get(
        self, name: TopicName, *, create: bool, properties: Mapping[str, str] | None = None
    ) -> AnyTopic:
        """The topic, loaded if need be; made where it does not exist and ``create`` allows. Raises
        ``TopicNotFound``; ``ServiceNotReady`` where this broker does not own it: look it up again.
        """
        while True:
            if (topic := self._topics.get(name)) is not None:
                return topic
            if not self._may_serve(name) or self._is_closing:
                raise _moved(name)
            # Shielded: one impatient client must not end what others wait for.
            if name in self._leaving:
                await asyncio.shield(self._leaving[name])
            elif name in self._loading:
                try:
                    await asyncio.shield(self._loading[name])
                except TopicNotFound:
                    if not create:  # else whoever began the load might not create: try ourselves
                        raise
            else:
                loading = self._loading[name] = asyncio.get_running_loop().create_future()
                self.spawn(self._load(name, loading, create, properties), name=f"load {name}")
                await asyncio.shield(loading)

    def _may_serve(self, name: TopicName) -> bool:
        return name in self._doomed or self._owns(name)

    async def _load(
        self,
        name: TopicName,
        loaded: asyncio.Future[None],
        create: bool,  # noqa: FBT001 (handed on from get)
        properties: Mapping[str, str] | None,
    ) -> None:
        failure: GemingaError = ServiceNotReady(f"{name} could not be loaded: try again")
        began_s = self._clock.monotonic()
        try:
            topic = await self._opened(name, properties or NO_TEXTS if create else None)
            # What is fenced before it is loaded, ``_fenced`` has not unloaded.
            if self._may_serve(name) and not topic.is_fenced:
                self._topics[name] = topic
                loaded.set_result(None)
            else:
                failure = _moved(name)
                await topic.__aexit__(None, None, None)
        except GemingaError as error:
            failure = error
            if not isinstance(error, TopicNotFound):
                log.warning("topic not loaded", extra={"topic": str(name), "error": str(error)})
        finally:
            del self._loading[name]
            if loaded.done():
                self.load_durations.add((self._clock.monotonic() - began_s) * 1000)
            else:
                self.loads_failed += not isinstance(failure, TopicNotFound)
                loaded.set_exception(failure)
                loaded.exception()  # whoever waited may have gone

    async def _opened(self, name: TopicName, create_with: Mapping[str, str] | None) -> AnyTopic:
        policies = await self._policies.of(name)
        if not name.is_persistent:
            return await NonPersistentTopic(
                name, self._clock, policies.subscribing, policies.publishing, self._broker_rate
            ).__aenter__()
        topic = PersistentTopic(
            name,
            self._logs,
            self._clock,
            create_with=create_with,
            on_fenced=self._fenced,
            publish_durations=self.publish_durations,
            policies=policies,
            publishing=self._policies.config.publishing,
            broker_rate=self._broker_rate,
            broker_gate=self._broker_gate,
        )
        try:
            await topic.__aenter__()
        except NodeMissing:
            raise TopicNotFound(str(name)) from None
        try:
            present = await self._policies.of(name)
            if present is not policies:  # they have changed meanwhile
                topic.apply(present)
        except BaseException:
            await topic.__aexit__(None, None, None)
            raise
        return topic

    # Policies

    def apply_policies(self, namespace: NamespaceName, policies: Policies) -> None:
        """A namespace's policies have changed: from now on its topics follow the new ones."""
        for topic in self._topics.values():
            if topic.name.namespace == namespace:
                topic.apply(self._policies.resolve(topic.name, policies))

    def namespaces(self) -> Iterable[NamespaceName]:
        """The namespaces of the topics that are open."""
        return (name.namespace for name in self._topics)

    async def enforce_quotas(self) -> None:
        """Once in a while: keep every topic's backlog within its quotas, if it has any."""
        for topic in self.loaded:
            if isinstance(topic, PersistentTopic) and not topic.backlog.quotas.is_unlimited:
                try:
                    await topic.enforce_quotas()
                except StorageUnavailable as error:
                    log.warning(
                        "backlog quota not checked",
                        extra={"topic": str(topic.name), "error": str(error)},
                    )

    async def expire_messages(self) -> None:
        """Once in a while: let subscriptions pass what has grown too old."""
        for topic in self.loaded:
            if isinstance(topic, PersistentTopic) and topic.subscribing.expires:
                try:
                    await topic.subscribing.expire()
                except StorageUnavailable as error:
                    log.warning(
                        "messages not looked at for expiry",
                        extra={"topic": str(topic.name), "error": str(error)},
                    )

    async def sweep_deduplication(self) -> None:
        """Once in a while: see that every topic keeps what its producers have sent."""
        for topic in self.loaded:
            if isinstance(topic, PersistentTopic) and (
                topic.intake.deduplication is not None or topic.intake.is_behind
            ):
                topic.sweep_deduplication()
                await asyncio.sleep(0)

    async def check_compaction(self) -> None:
        """Once in a while: compact the topics of which too much is not compacted yet, but few at
        once."""
        topics = [each for each in self.loaded if isinstance(each, PersistentTopic)]
        running = sum(each.compacting.is_running for each in topics)
        for topic in topics:
            if not topic.is_fenced and not topic.compacting.is_running:
                try:
                    await topic.compacting.check(may_begin=running < COMPACTIONS_AT_ONCE_MAX)
                    running += topic.compacting.is_running
                except GemingaError as error:
                    log.warning(
                        "not looked at for compaction",
                        extra={"topic": str(topic.name), "error": str(error)},
                    )

    async def delete_unused(self) -> None:
        """Once in a while: delete the topics that nobody has used for too long."""
        now_s = self._clock.monotonic()
        for number, topic in enumerate(self.loaded):
            rule = await self._inactivity_of(topic)
            if topic.is_used(rule):
                topic.last_used_s = now_s
            elif rule.is_deleting and is_over(
                rule, idle_s=now_s - topic.last_used_s, retention_ms=topic.retention_ms
            ):
                await self._delete_unused(topic)
            if number % TICK_TOPICS_MAX == TICK_TOPICS_MAX - 1:
                await asyncio.sleep(0)

    async def _inactivity_of(self, topic: AnyTopic) -> Inactivity:
        if isinstance(topic, PersistentTopic):
            return topic.inactivity
        return (await self._policies.of(topic.name)).inactivity

    async def _delete_unused(self, topic: AnyTopic) -> None:
        name = str(topic.name)
        try:
            async with self._left(topic):  # as it was judged: nothing was awaited since
                await topic.delete()
        except GemingaError as error:
            log.warning("unused topic not deleted", extra={"topic": name, "error": str(error)})
        else:
            log.info("unused topic deleted", extra={"topic": name})

    # Creating and deleting on request

    async def create(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Make a topic. Raises ``TopicExists``."""
        if name in self._topics or await self.exists(name):
            raise TopicExists(str(name))
        await self.get(name, create=True, properties=properties)

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic is open or stored."""
        is_open = name in self._topics
        return is_open or (name.is_persistent and await self._logs.exists(name.managed_ledger_name))

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic and all it stores. Raises ``TopicNotFound``, ``TopicBusy``."""
        topic = await self.get(name, create=False)
        if (connected := topic.connected_count) and not force:
            raise TopicBusy(f"Topic has {connected} connected producers/consumers")
        async with self._left(topic):
            await topic.delete()

    async def delete_doomed(self, name: TopicName) -> None:
        """Delete a topic whose namespace is marked as deleted: nobody finds its bundle any more,
        this broker's though it is. Raises ``TopicNotFound``."""
        self._doomed.add(name)
        try:
            await self.delete(name, force=True)
        finally:
            self._doomed.discard(name)

    # Closing

    async def unload(self, name: TopicName) -> None:
        """Close a topic here; its clients look it up again."""
        if (topic := self._topics.get(name)) is not None:
            await self._unload(topic)

    async def settled(self, namespace: NamespaceName) -> None:
        """Return when all loading, closing and deleting of a namespace's topics is done."""
        await self._settled_where(lambda name: name.namespace == namespace)

    async def _settled_where(self, is_meant: Callable[[TopicName], bool]) -> None:
        under_way = self._loading | self._leaving
        if waiting := [each for name, each in under_way.items() if is_meant(name)]:
            await asyncio.wait(waiting)

    @asynccontextmanager
    async def _left(self, topic: AnyTopic) -> AsyncGenerator[None, None]:
        """Take ``topic`` out, and close it in the end; until then nobody loads it again."""
        name = topic.name
        if self._topics.get(name) is not topic:
            raise TopicFenced(str(name))
        del self._topics[name]
        left = self._leaving[name] = asyncio.get_running_loop().create_future()
        try:
            try:
                yield
            finally:
                await topic.__aexit__(None, None, None)
        finally:
            del self._leaving[name]
            left.set_result(None)

    def _fenced(self, topic: PersistentTopic) -> None:
        if self._topics.get(topic.name) is topic:
            self.spawn(self.unload(topic.name), name=f"unload fenced {topic.name}")

    async def unload_where(self, is_lost: Callable[[TopicName], bool]) -> None:
        """Close all topics of a bundle that is no longer ours: all stop serving, then they are
        closed, not too many at once. What could not be closed in order is raised when all are.
        Those are waited for, too, that were being loaded or closed already."""
        await self._unloads.work(self._unload, await self._disconnect_where(is_lost))
        await self._settled_where(is_lost)

    async def _disconnect_where(self, is_lost: Callable[[TopicName], bool]) -> deque[AnyTopic]:
        """Let the clients of those topics go, of all before any is closed."""
        lost = deque[AnyTopic]()
        for number, topic in enumerate(self.loaded, 1):
            if is_lost(topic.name):
                topic.disconnect_all()
                lost.append(topic)
            if number % LOOKED_AT_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        return lost

    async def _unload(self, topic: AnyTopic) -> None:
        if self._topics.get(topic.name) is topic:
            async with self._left(topic):
                pass
        elif topic.name in self._leaving:
            await asyncio.shield(self._leaving[topic.name])

    async def _close_all(self) -> None:
        """The broker ends: topics whose bookies do not answer are left open in time."""
        while self._loading:  # ended before they began: whoever waits looks again
            self._loading.popitem()[1].set_result(None)
        close_by_s = asyncio.get_running_loop().time() + self._config.close_budget_s
        for topic in self._topics.values():
            if isinstance(topic, PersistentTopic):
                topic.close_by_s = close_by_s
        await self._unloads.work(self._unload, await self._disconnect_where(lambda _: True))

    async def renew_rates(self) -> None:
        """Once a stats period: every topic's rates, and their ``totals``."""
        totals = TopicTotals()
        for number, topic in enumerate(self.loaded):
            topic.tick(self._clock.monotonic())
            totals.add(topic)
            if number % TICK_TOPICS_MAX == TICK_TOPICS_MAX - 1:
                await asyncio.sleep(0)
        self.totals = totals
        self.publish_durations.renew()
        self.load_durations.renew()
