"""Which non-persistent topics there are: they stand in no record, so that the owner of each bundle
is asked for those that it has open."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_runtime.work_pool import WorkPool

# Each request takes a thread and a connection, and clients with patterns ask every minute: so many
# wait at a time for other brokers, the rest for them.
BROKERS_ASKED_AT_ONCE_MAX = 16

AskOwner = Callable[[Bundle, Owner], Awaitable[list[TopicName]]]


class NonPersistentTopics:
    """Those of this broker and of all others.

    ``here(namespace)`` gives those that are open here; ``ask_owner(bundle, owner)`` asks another
    broker for those of its bundle. Where one does not answer, what there is is not known, and
    ``ServerUnreachable`` or ``ServiceNotReady`` says so: a client would take a shorter list for
    topics that are gone. Both methods raise ``CoordinationError``, too.
    """

    def __init__(
        self,
        ownership: Ownership,
        *,
        here: Callable[[NamespaceName], list[TopicName]],
        ask_owner: AskOwner,
    ) -> None:
        self._ownership = ownership
        self._here = here
        self._ask_owner = ask_owner
        self._asking = WorkPool(BROKERS_ASKED_AT_ONCE_MAX)

    async def of(self, ring: BundleRing) -> list[TopicName]:
        """Those of the ring's namespace, partitions one by one, in order."""
        topics: set[TopicName] = set()

        async def ask(bundle: Bundle) -> None:
            topics.update(await self._elsewhere(bundle))

        await self._asking.run(ask, deque(ring.bundles))
        # Last, so that a bundle that came here in between is not missing.
        topics.update(self._here(ring.bundles[0].namespace))
        return sorted(topics, key=str)

    async def exists(self, topic: TopicName) -> bool:
        """Whether ``topic`` is open at the broker that owns it. Raises ``NamespaceNotFound``."""
        if topic in self._here(topic.namespace):
            return True
        return topic in await self._elsewhere(await self._ownership.bundle_of(topic))

    async def _elsewhere(self, bundle: Bundle) -> list[TopicName]:
        owner = await self._ownership.present_owner_of(bundle)
        return [] if owner is None or owner.is_self else await self._ask_owner(bundle, owner)
