"""The topics this broker serves: loaded on demand, once each, closed when their bundle goes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from geminga_broker.errors import (
    ServiceNotReady,
    TopicBusy,
    TopicExists,
    TopicFenced,
    TopicNotFound,
    TopicReplicated,
)
from geminga_broker.managed_ledger.factory import ManagedLedgerFactory
from geminga_broker.managed_ledger.records.log_store import NO_PROPERTIES
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.resolver import PolicyResolver, no_policies
from geminga_broker.replication.replicator import ReplicationServices
from geminga_broker.topics.config import TopicsConfig
from geminga_broker.topics.part import TopicServices
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.namespaces import Policies
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import NodeMissing
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool
from geminga_server.metrics import Durations

log = logging.getLogger(__name__)

# Topics of which it is asked whether they are still ours before others get a turn: that takes some
# microseconds for each, and all bundles of a namespace may ask at the same time.
LOOKED_AT_TOPICS_MAX = 50
# So many topics are closed at once: each asks ZooKeeper and bookies a few questions, of which no
# more may wait than a session holds (65,536) or can be answered before they are given up (6 s). As
# quick as 500, which took 20 KB each meanwhile.
UNLOADS_AT_ONCE_MAX = 100


Successor = asyncio.Future[Owner | None]
"""Which broker has a bundle next; None where that is not known."""


def _nothing(name: TopicName) -> None:
    del name


def _moved(name: TopicName) -> ServiceNotReady:
    return ServiceNotReady(f"this broker does not own {name}: look it up again")


class TopicDirectory(Service):
    """Topics by name. ``owns`` says whether a topic's bundle is this broker's now; ``suspect`` is
    told of each topic whose log or cursor another broker has taken over.

    What holds for a topic is said by ``policies``. When the directory closes, what its topics have
    to write may take as long as ``config`` says.
    """

    def __init__(
        self,
        factory: ManagedLedgerFactory,
        clock: Clock,
        *,
        owns: Callable[[TopicName], bool],
        suspect: Callable[[TopicName], None] = _nothing,
        policies: PolicyResolver | None = None,
        config: TopicsConfig | None = None,
        replication: ReplicationServices | None = None,
    ) -> None:
        super().__init__()
        self._factory = factory
        self._clock = clock
        self._owns = owns
        self._suspect = suspect
        self._policies = policies or PolicyResolver(PolicyConfig(log=factory.config), no_policies)
        self._config = config or TopicsConfig()
        self.services = TopicServices(
            factory,
            clock,
            self._policies.config,
            cluster=self._policies.cluster,
            replication=replication,
        )
        self._loading: dict[TopicName, asyncio.Future[None]] = {}
        self._topics: dict[TopicName, Topic] = {}
        self.load_durations = Durations()
        self.loads_failed = 0
        # Topics that go with their namespace.
        self._doomed: set[TopicName] = set()
        # Topics that are being closed or deleted: to be loaded again, they must be gone first.
        self._leaving: dict[TopicName, asyncio.Future[None]] = {}
        # Topics that another broker is to have, whose clients wait to be told which.
        self._successors: dict[TopicName, Successor] = {}
        self._unloads = WorkPool(UNLOADS_AT_ONCE_MAX)

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close_all)

    @property
    def loaded(self) -> list[Topic]:
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

    def find(self, name: TopicName) -> Topic | None:
        """The topic if it is open."""
        return self._topics.get(name)

    async def get(
        self, name: TopicName, *, create: bool, properties: Mapping[str, str] | None = None
    ) -> Topic:
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
            topic = await self._opened(name, properties or NO_PROPERTIES if create else None)
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

    async def _opened(self, name: TopicName, create_with: Mapping[str, str] | None) -> Topic:
        policies = await self._policies.of(name)
        topic = Topic(
            name, self.services, policies, create_with=create_with, on_fenced=self._fenced
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

    def apply_policies(
        self,
        namespace: NamespaceName,
        policies: Policies,
        only: Collection[TopicName] | None = None,
    ) -> None:
        """A namespace's policies have changed, or what these of its topics say themselves: from now
        on its topics, or these, follow the new ones."""
        for topic in self._topics.values():
            if topic.name.namespace == namespace and (only is None or topic.name.base in only):
                topic.apply(self._policies.resolve(topic.name, policies))

    def namespaces(self) -> Iterable[NamespaceName]:
        """The namespaces of the topics that are open."""
        return (name.namespace for name in self._topics)

    # Creating and deleting on request

    async def create(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Make a topic. Raises ``TopicExists``."""
        if name in self._topics or await self.exists(name):
            raise TopicExists(str(name))
        await self.get(name, create=True, properties=properties)

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic is open or stored."""
        is_open = name in self._topics
        return is_open or (
            name.is_persistent and await self._factory.exists(name.managed_ledger_name)
        )

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic and all it stores. Without ``force`` no client may be connected, and the
        topic may not be replicated.

        Raises ``TopicNotFound``, ``TopicReplicated``, ``TopicBusy``.
        """
        topic = await self.get(name, create=False)
        remotes = topic.policies.replication.remotes
        if remotes and not force and topic.keeps_messages:
            raise TopicReplicated(remotes)
        if (connected := topic.connected_count) and not force:
            raise TopicBusy(f"Topic has {connected} connected producers/consumers")
        await self.delete_topic(topic)

    async def delete_topic(self, topic: Topic) -> None:
        """Delete this very topic. Raises ``TopicFenced`` where it is not served any more."""
        async with self._left(topic):
            topic.disconnect_all()
            # First: a topic of the same name must find neither policies nor the schema. Those of
            # partitions stay until the whole topic goes.
            await self._policies.topics.delete(topic.name)
            if topic.name.partition_index < 0:
                await self.services.schemas.delete_all(topic.name)
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
    async def _left(self, topic: Topic) -> AsyncGenerator[None, None]:
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

    def _fenced(self, topic: Topic) -> None:
        if self._topics.get(topic.name) is topic:
            self._suspect(topic.name)
            self.spawn(self.unload(topic.name), name=f"unload fenced {topic.name}")

    def successor_of(self, name: TopicName) -> Successor | None:
        """The next broker of a topic that is handed on just now: its clients are told to leave when
        that is known. None for any other topic: its clients are told at once."""
        return self._successors.get(name)

    async def unload_where(
        self, is_lost: Callable[[TopicName], bool], successor: Successor | None = None
    ) -> None:
        """Close all topics of a bundle that is no longer ours: all stop serving, then they are
        closed, not too many at once. What could not be closed in order is raised when all are.
        Those are waited for, too, that were being loaded or closed already.

        With a ``successor``, which must have a result in the end, clients are told when it has."""
        await self._unloads.run(self._unload, await self._disconnect_where(is_lost, successor))
        await self._settled_where(is_lost)

    async def _disconnect_where(
        self, is_lost: Callable[[TopicName], bool], successor: Successor | None = None
    ) -> deque[Topic]:
        """Let the clients of those topics go, of all before any is closed."""
        lost = deque[Topic]()
        for number, topic in enumerate(self.loaded, 1):
            if is_lost(topic.name):
                if successor is not None:
                    self._successors[topic.name] = successor
                try:
                    topic.disconnect_all()
                finally:
                    self._successors.pop(topic.name, None)
                lost.append(topic)
            if number % LOOKED_AT_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        return lost

    async def _unload(self, topic: Topic) -> None:
        if self._topics.get(topic.name) is topic:
            async with self._left(topic):
                pass
        elif topic.name in self._leaving:
            await asyncio.shield(self._leaving[topic.name])

    def limit_closing(self) -> None:
        """The broker ends: topics that are closed from now on have their budget, from now on."""
        close_by_s = asyncio.get_running_loop().time() + self._config.close_budget_s
        for topic in self._topics.values():
            topic.close_by_s = close_by_s

    async def _close_all(self) -> None:
        """The broker ends: topics whose bookies do not answer are left open in time."""
        while self._loading:  # ended before they began: whoever waits looks again
            self._loading.popitem()[1].set_result(None)
        self.limit_closing()
        await self._unloads.run(self._unload, await self._disconnect_where(lambda _: True))
