"""Loads replicated topics that no client uses, so that their replicators go on.

Other topics are loaded for their first client. A replicated one has work to do without clients:
what was published before its broker ended, or before the topic moved, waits in its log. So a broker
that acquires a bundle loads those topics in it that have a replicator's cursor. And the leader has
bundles with such topics acquired that have no owner: when it becomes the leader, and when a broker
is gone. A namespace that is not replicated costs one read of its policies, and of those of its
topics.
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
from geminga_protocol.pulsar.messages.replication import remote_of_cursor
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool

log = logging.getLogger(__name__)

# Topics that are loaded at a time: each takes requests to ZooKeeper and bookies, and loading those
# that clients wait for must not be delayed.
LOADS_AT_ONCE_MAX = 8
# What failed, mostly for lack of a connection, is retried after so long; so often the leader checks
# whether a broker is gone. Topics are served late by this at worst: what they have to replicate
# waits in their logs.
PERIOD_S = 5.0


class ReplicatedTopics(Service):
    """The replicated topics that one broker has to load.

    ``is_leader`` says whether this broker is the leader, ``view_brokers`` which brokers live.
    """

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
        # Bundles that were acquired, and whose topics were not loaded yet, in this order. Each
        # once, however often it was acquired: loading looks at what is owned then.
        self._acquired: dict[Bundle, None] = {}
        self._woken = asyncio.Event()
        # The brokers that lived when this one, as the leader, last had all bundles served; None
        # before that, and while it is not the leader. Only replaced when a whole round has
        # succeeded, so that a round that failed is repeated.
        self._living: frozenset[str] | None = None
        # Called in the turn in which the bundle becomes this broker's. It only notes: loading takes
        # requests, and ``acquire`` holds the bundle's lock meanwhile.
        ownership.owned.on_acquired.append(self._note)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn_lasting(self._load_acquired, name="load replicated topics")
        self.spawn_every(PERIOD_S, self.serve_unowned, name="have replicated topics served")

    # Bundles of this broker

    def _note(self, bundle: Bundle) -> None:
        self._acquired[bundle] = None
        self._woken.set()

    async def _load_acquired(self) -> None:
        while True:
            await self._woken.wait()
            # Before the bundles are taken out: one that is acquired during the loads wakes the next
            # turn.
            self._woken.clear()
            failed: list[Bundle] = []
            while self._acquired:
                # The oldest first. Taken out before it is loaded: a bundle that is lost and
                # acquired again meanwhile is noted anew.
                bundle = next(iter(self._acquired))
                del self._acquired[bundle]
                if not await self._load(bundle):
                    failed.append(bundle)
            # Bundles that are acquired during the pause wait for its end, too. The failed ones are
            # noted as if they were just acquired: ``_load`` drops those that have moved on.
            if failed:
                await asyncio.sleep(PERIOD_S)
                for bundle in failed:
                    self._note(bundle)

    async def _load(self, bundle: Bundle) -> bool:
        """Load the replicated topics of a bundle; False where that is to be retried."""
        is_done = True

        async def load(topic: TopicName) -> None:
            nonlocal is_done
            # The bundle may have moved on, and clients may have had the topic loaded. Asked when
            # the topic's turn comes, not when the list is made: other topics took their time.
            if not self._ownership.owns(topic) or topic in self._topics.loaded:
                return
            try:
                if await self._has_replicator(topic):
                    # ``create=False``: the record of the topic may be gone, and loading must not
                    # bring it back.
                    with suppress(TopicNotFound):  # deleted meanwhile
                        await self._topics.get(topic, create=False)
            except GemingaError as error:
                # A topic that moved to another broker meanwhile is loaded there.
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
            # False, to be retried, only while this broker owns the bundle.
            return bundle not in self._ownership.owned.generations
        # The list is of the whole namespace.
        within = deque(topic for topic in topics if bundle.covers(topic.hash))
        await WorkPool(LOADS_AT_ONCE_MAX).run(load, within)
        return is_done

    async def _replicated_in(self, namespace: NamespaceName) -> Iterable[TopicName]:
        """The topics of a namespace that are replicated to other clusters."""
        try:
            policies = await self._namespaces.policies(namespace)
        except NamespaceNotFound:
            return []  # that of a broker's health check has no record, a deleted one no topics
        # A broker serves no topic of such a namespace, so that it has none to replicate.
        if not serves(self._policies.cluster, policies):
            return []
        # Topics may be replicated by policies of their own. Before they are resolved: until the own
        # policies of its topics are read, a topic that is replicated by them alone would look as if
        # it were not.
        await self._policies.topics.ready(namespace)
        topics = await self._persistent_topics.names(namespace)
        return [t for t in topics if self._policies.resolve(t, policies).replication.remotes]

    async def _has_replicator(self, topic: TopicName) -> bool:
        """Whether anything was replicated yet: without a cursor nothing waits in the log."""
        # From ZooKeeper, where each cursor is a node: a topic need not be loaded for that.
        cursors = await self._persistent_topics.cursors(topic)
        return any(remote_of_cursor(each) is not None for each in cursors)

    # Bundles without an owner

    async def serve_unowned(self) -> None:
        """As the leader, have replicated topics served that no broker owns."""
        # A broker that becomes the leader later begins with a whole round.
        if not self._is_leader():
            self._living = None
            return
        try:
            living = frozenset((await self._view_brokers()).loads)
            # Only a broker that is gone leaves bundles without an owner, a new one does not. Both
            # ways: a leader that was elected just now does not know who died before that.
            if self._living is None or self._living - living:
                for tenant in await self._tenants.names():
                    for namespace in await self._namespaces.names(tenant):
                        await self._serve_namespace(namespace)
        except GemingaError as error:
            # Retried after the period, as ``_living`` stays what it was.
            log.info("replicated topics not checked", extra={"why": str(error)})
        else:
            self._living = living

    async def _serve_namespace(self, namespace: NamespaceName) -> None:
        """Have the bundles acquired that have no owner and a topic with a replicator's cursor."""
        checked: set[Bundle] = set()
        # In the bundles as they are cut now. A split in between is no harm: its pieces have the
        # owner.
        for topic in await self._replicated_in(namespace):
            bundle = await self._ownership.rings.bundle_of(topic)
            # One such topic is enough: whichever broker acquires the bundle loads all of them.
            if bundle in checked or not await self._has_replicator(topic):
                continue
            checked.add(bundle)
            if await self._ownership.present_owner_of(bundle) is None:
                # ``present_owner_of`` answered before this; where a lookup was faster, this finds
                # its owner.
                await self._ownership.have_acquired(bundle)
