"""Which non-persistent topics there are.

They have no record in ZooKeeper: the owner of each bundle is asked for those that it has loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.work_pool import WorkPool

# How many requests to other brokers are in progress at a time, of all calls together. Each takes a
# thread and a connection, and clients with patterns ask every minute.
BROKERS_ASKED_AT_ONCE_MAX = 16

AskOwner = Callable[[Bundle, Owner], Awaitable[list[TopicName]]]


@dataclass(slots=True, eq=False)
class NonPersistentTopics:
    """The non-persistent topics of this broker and of all others.

    ``here(namespace)`` returns those loaded on this broker; ``ask_owner(bundle, owner)`` asks
    another broker for those of its bundle. Where one does not answer, ``ServerUnreachable`` or
    ``ServiceNotReady`` is raised, and no shorter list returned: clients would take the topics that
    are missing in it for deleted. Both methods raise ``CoordinationError``, too.
    """

    ownership: Ownership
    here: Callable[[NamespaceName], list[TopicName]]
    ask_owner: AskOwner
    _asking: WorkPool = field(
        default_factory=lambda: WorkPool(BROKERS_ASKED_AT_ONCE_MAX), init=False
    )

    async def of(self, ring: BundleRing) -> list[TopicName]:
        """The topics of the ring's namespace, each partition by itself, sorted."""
        # A set: a bundle that moves while the others are asked may be answered by two brokers.
        topics: set[TopicName] = set()

        async def ask(bundle: Bundle) -> None:
            topics.update(await self._elsewhere(bundle))

        # A new deque each time: the pool takes out what is done.
        await self._asking.run(ask, deque(ring.bundles))
        # Read last: a bundle that moved to this broker while the others were asked is not missed.
        topics.update(self.here(ring.bundles[0].namespace))
        return sorted(topics, key=str)

    async def exists(self, topic: TopicName) -> bool:
        """Whether ``topic`` is loaded by the broker that owns it. Raises ``NamespaceNotFound``."""
        # No request is needed for those.
        if topic in self.here(topic.namespace):
            return True
        return topic in await self._elsewhere(await self.ownership.rings.bundle_of(topic))

    async def _elsewhere(self, bundle: Bundle) -> list[TopicName]:
        """The topics of a bundle that another broker owns; none for any other bundle."""
        # A bundle without an owner is not acquired for that: nothing is loaded in it.
        owner = await self.ownership.present_owner_of(bundle)
        return [] if owner is None or owner.is_self else await self.ask_owner(bundle, owner)
