"""Loads topics that have something to replicate, though no client asks for them.

The first client of a topic has its broker load it. A replicated topic has work to do without one:
what was published before its broker ended, or before it moved, waits in its log. So a broker that
acquires a bundle loads those topics in it that have a replicator's cursor; and the leader has
bundles with such topics acquired that no broker owns, when it begins to lead and when a broker is
gone. Namespaces that are not replicated cost one look at their policies, and at whether topics of
theirs have any.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress

from geminga_broker.errors import TopicNotFound
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.ownership import Ownership, ViewBrokers
from geminga_broker.policies.resolver import PolicyResolver
from geminga_broker.topics.directory import TopicDirectory
from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces, serves
from geminga_cluster.persistent_topics import PersistentTopics
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.replication import remote_of_cursor
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool

log = logging.getLogger(__name__)

# As many as clients of a bundle would have loaded side by side; each asks ZooKeeper and bookies.
LOADS_AT_ONCE_MAX = 8
# What failed, mostly for lack of a connection, is tried again after so long; the leader looks as
# often whether a broker is gone.
PERIOD_S = 5.0


class ReplicatedTopics(Service):
    """Of one broker. ``is_leader`` and ``view_brokers`` tell whether it leads, and which live."""

    def __init__(
        self,
        *,
        tenants: Tenants,
        namespaces: Namespaces,
        persistent_topics: PersistentTopics,
        policies: PolicyResolver,
        ownership: Ownership,
        topics: TopicDirectory,
        is_leader: Callable[[], bool],
        view_brokers: ViewBrokers,
    ) -> None:
        super().__init__()
        self._tenants = tenants
        self._namespaces = namespaces
        self._persistent_topics = persistent_topics
        self._policies = policies
        self._ownership = ownership
        self._topics = topics
        self._is_leader = is_leader
        self._view_brokers = view_brokers
        # Acquired, and not looked through yet.
        self._acquired: dict[Bundle, None] = {}
        self._woken = asyncio.Event()
        # The brokers that lived when this one, as the leader, last found no bundle without owner.
        self._living: frozenset[str] | None = None
        ownership.on_acquired(self._note)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # nothing but its work, which the service itself ends
        self.spawn_lasting(self._load_acquired, name="load replicated topics")
        self.spawn_every(PERIOD_S, self.look_after_others, name="have replicated topics served")

    # Of bundles that are this broker's

    def _note(self, bundle: Bundle) -> None:
        self._acquired[bundle] = None
        self._woken.set()

    async def _load_acquired(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            failed: list[Bundle] = []
            while self._acquired:
                bundle = next(iter(self._acquired))
                del self._acquired[bundle]
                if not await self._load(bundle):
                    failed.append(bundle)
            if failed:
                await asyncio.sleep(PERIOD_S)
                for bundle in failed:
                    self._note(bundle)

    async def _load(self, bundle: Bundle) -> bool:
        """Load what is replicated of a bundle; False where it is to be tried again."""
        is_done = True

        async def load(topic: TopicName) -> None:
            nonlocal is_done
            if not self._ownership.owns(topic) or self._topics.find(topic) is not None:
                return
            try:
                if await self._has_replicator(topic):
                    with suppress(TopicNotFound):  # deleted meanwhile
                        await self._topics.get(topic, create=False)
            except GemingaError as error:
                is_done = is_done and not self._ownership.owns(topic)
                log.info(
                    "replicated topic not loaded", extra={"topic": str(topic), "why": str(error)}
                )

        try:
            topics = await self._replicated_in(bundle.namespace)
        except GemingaError as error:
            log.info(
                "replicated topics not found", extra={"bundle": str(bundle), "why": str(error)}
            )
            return bundle not in self._ownership.owned()
        within = deque(topic for topic in topics if bundle.covers(topic.hash))
        await WorkPool(LOADS_AT_ONCE_MAX).run(load, within)
        return is_done

    async def _replicated_in(self, namespace: NamespaceName) -> Iterable[TopicName]:
        """The topics of a namespace that are replicated to other clusters."""
        try:
            policies = await self._namespaces.policies(namespace)
        except NamespaceNotFound:
            return []  # a broker's own has no policies, and one that is deleted no topics
        if not serves(self._policies.cluster, policies):
            return []
        await self._policies.topics.ready(namespace)
        topics = await self._persistent_topics.names(namespace)
        return [t for t in topics if self._policies.resolve(t, policies).replication.remotes]

    async def _has_replicator(self, topic: TopicName) -> bool:
        cursors = await self._persistent_topics.cursors(topic)
        return any(remote_of_cursor(each) is not None for each in cursors)

    # Of bundles that are no broker's

    async def look_after_others(self) -> None:
        """As the leader, have replicated topics served that no broker serves."""
        if not self._is_leader():
            self._living = None
            return
        try:
            living = frozenset((await self._view_brokers()).loads)
            # A broker that came has left no bundle behind.
            if self._living is None or self._living - living:
                await self._have_served()
        except GemingaError as error:
            log.info("replicated topics not looked after", extra={"why": str(error)})
        else:
            self._living = living

    async def _have_served(self) -> None:
        for tenant in await self._tenants.names():
            for namespace in await self._namespaces.names(tenant):
                looked_at: set[Bundle] = set()
                for topic in await self._replicated_in(namespace):
                    bundle = await self._ownership.bundle_of(topic)
                    if bundle in looked_at or not await self._has_replicator(topic):
                        continue
                    looked_at.add(bundle)
                    if await self._ownership.present_owner_of(bundle) is None:
                        await self._ownership.have_acquired(bundle)
