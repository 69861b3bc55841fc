"""The topics that this broker serves: loaded on demand, closed when it loses their bundle."""

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
from geminga_broker.topics.part import OwningTopic, TopicServices
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import NodeMissing
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool
from geminga_server.metrics import Durations

log = logging.getLogger(__name__)

# Topics checked for their bundle in one turn of the event loop: each check takes some microseconds,
# and all bundles of a namespace may be checked at the same time.
CHECKED_TOPICS_MAX = 50
# Topics closed at once. Each sends a few requests to ZooKeeper and bookies, of which no more may be
# pending than a session holds (65,536) or can be answered before they time out (6 s). 500 were no
# quicker, and took 20 KB each meanwhile.
UNLOADS_AT_ONCE_MAX = 100


Successor = asyncio.Future[Owner | None]
"""The broker that owns a bundle next; None if it is not known."""


def _moved(name: TopicName) -> ServiceNotReady:
    return ServiceNotReady(f"this broker does not own {name}: look it up again")


class TopicDirectory(Service):
    """The topics of one broker by name.

    ``owns`` says whether this broker owns a topic's bundle now. ``suspect`` is called for each
    topic whose log or cursor another broker has taken over. ``policies`` resolves those of a topic.
    """

    def __init__(
        self,
        factory: ManagedLedgerFactory,
        clock: Clock,
        *,
        owns: Callable[[TopicName], bool],
        suspect: Callable[[TopicName], None] = lambda _: None,
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
        # A topic is in one of these: loading, then loaded (it is open), then leaving (being closed
        # or deleted). It is not loaded again before it has left. Changed here only; it may change
        # whenever a task waits.
        self.loading: dict[TopicName, asyncio.Future[None]] = {}
        self.loaded: dict[TopicName, Topic] = {}
        self._leaving: dict[TopicName, asyncio.Future[None]] = {}
        # How long the loads took that succeeded, in milliseconds; and how many failed, not counting
        # those of topics that do not exist.
        self.load_durations = Durations()
        self.loads_failed = 0
        # Topics that are deleted with their namespace.
        self._doomed: set[TopicName] = set()
        # The next owners of topics that are being handed over, whose clients are told to reconnect
        # once it is known. Clients of all other topics are told at once. An entry is there only
        # while ``disconnect_all`` of its topic runs, within one turn.
        self.successors: dict[TopicName, Successor] = {}
        # Shared by all callers: several bundles that are lost at once do not close more topics at a
        # time.
        self._unloads = WorkPool(UNLOADS_AT_ONCE_MAX)

    async def _open(self, stack: AsyncExitStack) -> None:
        # ``Service`` ends the tasks first: a load that is cancelled closes what it had opened.
        stack.push_async_callback(self._close_all)

    def non_persistent_in(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace that are open now: no record names them."""
        return [
            name for name in self.loaded if not name.is_persistent and name.namespace == namespace
        ]

    async def get(
        self, name: TopicName, *, create: bool, properties: Mapping[str, str] | None = None
    ) -> Topic:
        """The topic, loaded if it is not open, and with ``create`` created if it does not exist.

        Raises ``TopicNotFound``, and ``ServiceNotReady`` if this broker does not own it.
        """
        # Each pass ends with the topic, with an error, or with a wait for the future of whatever is
        # going on with the name. After such a wait nothing is known any more, and all is asked
        # again: the topic may be open, closed once more, or another broker's.
        while True:
            if (topic := self.loaded.get(name)) is not None:
                return topic
            # Before the waits below, too: a client that could only wait for another broker's topic
            # is told to look it up at once.
            if not self._may_serve(name) or self._is_closing:
                raise _moved(name)
            # Shielded: one client that gives up must not end what others wait for. A topic that is
            # deleted is waited for as well; after that it does not exist, and may be created.
            if name in self._leaving:
                await asyncio.shield(self._leaving[name])
            elif name in self.loading:
                try:
                    await asyncio.shield(self.loading[name])
                except TopicNotFound:
                    # The request that began this load may not have been allowed to create.
                    if not create:
                        raise
            else:
                # No await between the look at ``loading`` and this line: of several clients that
                # ask at once, one begins the load, and the others wait for it.
                loading = self.loading[name] = asyncio.get_running_loop().create_future()
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
        # The outcomes of a load, each of which ends the future ``loaded``:
        #
        #     opened, still this broker's     in ``self.loaded``, result None
        #     opened, lost meanwhile          closed again, ServiceNotReady
        #     error of storage or policies    that error; TopicNotFound is none of the failed loads
        #     cancelled: the broker ends      ServiceNotReady
        #
        # What waiting clients are told if this task is cancelled.
        failure: GemingaError = ServiceNotReady(f"{name} could not be loaded: try again")
        began_s = self._clock.monotonic()
        try:
            # None forbids to create a log; the empty mapping gives a new one no properties.
            topic = await self._opened(name, properties or NO_PROPERTIES if create else None)
            # While it was opened, its bundle may have been lost, or another broker may have fenced
            # its log; ``_fenced`` unloads only topics that are open. No await between this check
            # and the next line.
            if self._may_serve(name) and not topic.is_fenced:
                self.loaded[name] = topic
                loaded.set_result(None)
            else:
                failure = _moved(name)
                # While ``name`` is still in ``loading``: another load of it must not open the log
                # before this one has closed it.
                await topic.__aexit__(None, None, None)
        except GemingaError as error:
            failure = error
            if not isinstance(error, TopicNotFound):
                log.warning("topic not loaded", extra={"topic": str(name), "error": str(error)})
        finally:
            # In the same turn as the entry in ``loaded`` and the end of the future: requests that
            # wait for it find either the topic or an empty place.
            del self.loading[name]
            if loaded.done():
                self.load_durations.add((self._clock.monotonic() - began_s) * 1000)
            else:
                self.loads_failed += not isinstance(failure, TopicNotFound)
                loaded.set_exception(failure)
                loaded.exception()  # mark it as retrieved: all clients that waited may have left

    async def _opened(self, name: TopicName, create_with: Mapping[str, str] | None) -> Topic:
        # Before the topic exists: its log and its parts are made with their policies.
        policies = await self._policies.of(name)
        topic = Topic(
            name, self.services, policies, create_with=create_with, on_fenced=self._fenced
        )
        # A topic that fails to open closes what it has opened by itself.
        try:
            await topic.__aenter__()
        except NodeMissing:
            raise TopicNotFound(str(name)) from None
        try:
            present = await self._policies.of(name)
            # ``apply_policies`` reaches only topics that are open: catch up on a change meanwhile.
            if present is not policies:
                # The resolver returns the same object unless something has changed, or its cache
                # was emptied. Following equal policies again does no harm.
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
        """Let the open topics of a namespace, or ``only`` these of them, follow changed policies:
        those of the namespace, or their own."""
        # Partitions follow the policies of their partitioned topic, which ``base`` names.
        # Synchronous for all open topics of the namespace, so that ``loaded`` does not change
        # meanwhile.
        for topic in self.loaded.values():
            if topic.name.namespace == namespace and (only is None or topic.name.base in only):
                topic.apply(self._policies.resolve(topic.name, policies))

    def namespaces(self) -> Iterable[NamespaceName]:
        """The namespaces of the topics that are open."""
        return (name.namespace for name in self.loaded)

    # Creating and deleting on request

    async def create(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Create a topic. Raises ``TopicExists``."""
        # Two requests at once may both pass: then the second one finds the topic of the first.
        if name in self.loaded or await self.exists(name):
            raise TopicExists(str(name))
        await self.get(name, create=True, properties=properties)

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic is open or stored."""
        is_open = name in self.loaded
        return is_open or (
            name.is_persistent and await self._factory.exists(name.managed_ledger_name)
        )

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic and all it stores. Without ``force`` no client may be connected, and the
        topic may not be replicated.

        Raises ``TopicNotFound``, ``TopicReplicated``, ``TopicBusy``.
        """
        # Loaded if it is not open: its parts delete what they have stored.
        topic = await self.get(name, create=False)
        # No await from here to ``_left``, which takes the topic out: a client that is not connected
        # now is refused until the topic is gone.
        remotes = topic.policies.replication.remotes
        if remotes and not force and topic.name.is_persistent:
            raise TopicReplicated(remotes)
        if (connected := topic.connected_count) and not force:
            raise TopicBusy(f"Topic has {connected} connected producers/consumers")
        await self.delete_topic(topic)

    async def delete_topic(self, topic: Topic) -> None:
        """Delete ``topic``, and no later one of its name. Raises ``TopicFenced`` if it has left."""
        async with self._left(topic):
            # A deletion that fails behind this line leaves a topic that is closed and partly
            # deleted. Its log is still there, so that the request can be repeated; a client that
            # comes first may find it without policies of its own.
            topic.disconnect_all()
            # First policies and schema: a later topic of the same name must not find them. All
            # partitions share them, so they stay until the partitioned topic is deleted.
            await self._policies.topics.delete(topic.name)
            # The REST interface, which deletes partitioned topics, calls the registry itself.
            if topic.name.partition_index < 0:
                await self.services.schemas.delete_all(topic.name)
            await topic.delete()

    async def delete_doomed(self, name: TopicName) -> None:
        """Delete a topic whose namespace is marked as deleted. Raises ``TopicNotFound``.

        Look-ups do not find its bundle any more, although this broker still owns it.
        """
        # While it is in here, this broker serves the topic whatever look-ups say.
        self._doomed.add(name)
        try:
            await self.delete(name, force=True)
        finally:
            self._doomed.discard(name)

    # Closing

    async def unload(self, name: TopicName) -> None:
        """Close a topic here; its clients look it up again."""
        if (topic := self.loaded.get(name)) is not None:
            await self._unload(topic)

    async def settled(self, is_meant: Callable[[TopicName], bool]) -> None:
        """Return when none of these topics is being loaded, closed or deleted any more."""
        # As they are now. What begins to load later is not waited for: the caller has seen to it
        # that this broker may not serve these topics any more, or that they are being deleted.
        unsettled = self.loading | self._leaving
        if waiting := [each for name, each in unsettled.items() if is_meant(name)]:
            await asyncio.wait(waiting)

    @asynccontextmanager
    async def _left(self, topic: Topic) -> AsyncGenerator[None, None]:
        """Take ``topic`` out, and close it at the end; until then it is not loaded again."""
        name = topic.name
        # By identity: a topic of the same name may have been loaded since the caller found its own.
        if self.loaded.get(name) is not topic:
            raise TopicFenced(str(name))
        del self.loaded[name]
        # In the same turn in which it leaves ``loaded``: there is no moment at which ``get`` could
        # find the name free, and open the log a second time.
        left = self._leaving[name] = asyncio.get_running_loop().create_future()
        try:
            try:
                yield
            finally:
                await topic.__aexit__(None, None, None)
        finally:
            del self._leaving[name]
            # Also after an error, which is the caller's to report: clients that wait try to load
            # the topic, and learn from that whether it works.
            left.set_result(None)

    def _fenced(self, topic: OwningTopic) -> None:
        """Another broker has taken over the log of ``topic``: close it here."""
        # Only for a topic that is open: one that is being loaded or closed sees that it is fenced.
        if self.loaded.get(topic.name) is topic:
            self._suspect(topic.name)
            # A task, because this is called from within the log, which must not be closed below its
            # own caller.
            self.spawn(self.unload(topic.name), name=f"unload fenced {topic.name}")

    async def unload_where(
        self, is_lost: Callable[[TopicName], bool], successor: Successor | None = None
    ) -> None:
        """Close all topics of a bundle that this broker no longer owns.

        All stop serving first, then they are closed, a limited number at once. Topics that are
        being loaded or closed already are waited for. Errors are raised when all are closed.

        With a ``successor``, clients are told to reconnect when it has a result, which it must get.
        """
        await self._unloads.run(self._unload, await self._disconnect_where(is_lost, successor))
        await self.settled(is_lost)

    async def _disconnect_where(
        self, is_lost: Callable[[TopicName], bool], successor: Successor | None = None
    ) -> deque[Topic]:
        """Disconnect the clients of those topics, of all before any is closed."""
        lost = deque[Topic]()
        for number, topic in enumerate(list(self.loaded.values()), 1):
            if is_lost(topic.name):
                if successor is not None:
                    self.successors[topic.name] = successor
                try:
                    # Sessions look into ``successors`` while they are told.
                    topic.disconnect_all()
                finally:
                    self.successors.pop(topic.name, None)
                lost.append(topic)
            if number % CHECKED_TOPICS_MAX == 0:
                await asyncio.sleep(0)
        return lost

    async def _unload(self, topic: Topic) -> None:
        # It may have been closed, and even loaded again, since it was chosen. Not an error, as in
        # ``_left``: the caller wants the topic closed, and it is, or will be.
        if self.loaded.get(topic.name) is topic:
            async with self._left(topic):
                pass
        elif topic.name in self._leaving:
            await asyncio.shield(self._leaving[topic.name])

    def limit_closing(self) -> None:
        """The broker ends: all topics share one budget of time for closing, which begins now."""
        # The broker calls this first when it begins to hand its bundles on, and the directory again
        # when it closes what is left: the second call gives those topics a budget of their own.
        close_by_s = asyncio.get_running_loop().time() + self._config.close_budget_s
        for topic in self.loaded.values():
            topic.close_by_s = close_by_s

    async def _close_all(self) -> None:
        """The broker ends: close all topics within the budget."""
        # Loads whose tasks were cancelled before they began. Requests that wait for them check
        # again, and find that the directory is closing. A cancelled task whose coroutine never ran
        # executes no ``finally``: its future would stay for ever.
        while self.loading:
            self.loading.popitem()[1].set_result(None)
        self.limit_closing()
        await self._unloads.run(self._unload, await self._disconnect_where(lambda _: True))
