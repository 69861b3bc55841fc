"""Which broker owns the bundle of a topic: what lookups are answered from.

It consists of parts that know nothing of each other: the ``Rings`` find the bundle of a topic, the
``OwnerCache`` its owner according to ZooKeeper, the ``Placement`` the broker that shall have it if
no broker owns it, and the ``OwnedBundles`` acquire it and hand it on::

    topic ─▶ Rings ─▶ bundle ─▶ OwnedBundles: ours? ─▶ OwnerCache: another's?
                                                 └─ no broker's ─▶ place ─▶ acquire, or redirect

What was looked up is kept under watches: repeated lookups send no request, and a bundle that
another broker owns costs ZooKeeper reads only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import (
    BrokerAddress,
    LookupReason,
    Owner,
    broker_id_of_url,
    owner_at,
)
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.placement import (
    BrokersView,
    Placement,
    candidate,
    evenly_spread,
    place,
)
from geminga_broker.ownership.assignment.split import pieces
from geminga_broker.ownership.clusters import ServingClusters
from geminga_broker.ownership.errors import NotOwned
from geminga_broker.ownership.owned_bundles import OwnedBundles
from geminga_broker.ownership.owners import BundleNode, OwnerCache, Unowned
from geminga_broker.ownership.rings import Rings
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.ownership import BundleOwner
from geminga_runtime.coordination import Coordination, CoordinationError
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_runtime.work_pool import WorkPool

log = logging.getLogger(__name__)

ViewBrokers = Callable[[], Awaitable[BrokersView]]

# Bundles that a broker which ends hands on side by side: each waits for bookies, ZooKeeper and
# another broker in turn, and its clients for all of these.
HANDED_ON_AT_ONCE_MAX = 8
# How long a destination holds: as long as an owner may take to close the topics of a bundle
# (``load_balancer_unload_timeout_s``).
DESTINED_S = 60.0
# More than operators request one by one in that time. They take 200 KB.
DESTINED_MAX = 1000

Assign = Callable[[Bundle, Owner], Awaitable[None]]


async def _alone() -> BrokersView:
    return BrokersView()


async def _assign_nothing(bundle: Bundle, asked: Owner) -> None:
    """Leave it to the next lookup of the bundle to have it acquired."""


class Ownership(Service):
    """This broker's bundles and the owners of all others."""

    def __init__(
        self,
        coordination: Coordination,
        namespaces: Namespaces,
        address: BrokerAddress,
        *,
        former_broker_ids: Iterable[str] = (),
        placement: Placement = evenly_spread,
        view_brokers: ViewBrokers = _alone,
        assign: Assign = _assign_nothing,
        clusters: ServingClusters | None = None,
    ) -> None:
        """``former_broker_ids`` are ids that this broker had in earlier runs: nodes of these are
        its own.

        ``view_brokers`` returns what is known of the brokers at the time of each choice, which
        ``placement`` makes where this broker is to choose.
        ``assign`` asks another broker to acquire a bundle, or to choose which one shall.
        ``clusters`` knows which namespaces this cluster serves, by default all.
        """
        super().__init__()
        self.address = address
        # This broker as the answer to a lookup: one object, however many bundles it owns.
        self._self = owner_at(address, is_self=True)
        # Nodes in ZooKeeper that name one of these ids were made by this broker or an earlier run.
        # Its own present id is among them: a broker that is started again at once finds the nodes
        # of the session before, which ZooKeeper has not ended yet.
        self._past_ids = frozenset((address.broker_id, *former_broker_ids))
        # Asked on the broker that leads, and on any broker while there is no leader.
        self._placement = placement
        self._view_brokers = view_brokers
        self._assign = assign
        self._clusters = clusters
        self._namespaces = namespaces
        # The bundle of each topic.
        self.rings = Rings(namespaces)
        # By bundle: the broker that an operator wants to have it, and until when that holds
        # (monotonic); the oldest first. Set on the leader alone, as it places the bundles: the
        # owner that gives a bundle up asks the leader, or sends lookups there.
        self._destinations: OrderedDict[Bundle, tuple[str, float]] = OrderedDict()
        # The owners of bundles that other brokers have. A bundle that is in ``owned`` is asked for
        # there: what stands here of it may be from before this broker acquired it.
        self._owners = OwnerCache(coordination, is_past=self._is_past)
        # This broker's bundles. Lookups have them acquired; ``unload``, ``retire`` and ``split``
        # give them up: callers read it, and append to its lists of callbacks.
        self.owned = OwnedBundles(
            coordination,
            BundleOwner(
                native_url=address.broker_url or None,
                native_url_tls=address.broker_url_tls or None,
                http_url=address.http_url or None,
                http_url_tls=address.http_url_tls or None,
                advertised_listeners=address.listeners,
            ).encode(),
            is_past=lambda value: self._is_past(BundleOwner.decode(value)),
            # With authority: this broker had the bundle, and takes it without asking the leader
            # where no other broker does. Without that, clients that come back would wait for a
            # placement first.
            take_back=lambda bundle: self.owner_of(bundle, authoritative=True),
        )

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.owned)

    # Lookups

    async def owner(self, topic: TopicName, *, authoritative: bool = False) -> Owner:
        """The owner of ``topic``, which need not exist. A bundle that no broker owns is acquired if
        it is placed on this broker, or if the lookup is ``authoritative``; else the answer is the
        broker to ask next (``Owner.is_redirect``). For a namespace that this cluster does not serve
        that is a peer cluster.

        Raises ``NamespaceNotFound``, ``ServedInOtherClusters``, ``ServiceNotReady``,
        ``CoordinationError``.
        """
        # First: a broker acquires no bundle of a namespace that its cluster does not serve. The
        # client repeats its lookup at the peer.
        peer = await self.peer_of(topic.namespace)
        if peer is not None:
            return peer
        bundle = await self.rings.bundle_of(topic)
        return await self.owner_of(bundle, authoritative=authoritative)

    async def peer_of(self, namespace: NamespaceName) -> Owner | None:
        """None where this cluster serves ``namespace``, else the peer cluster that does.

        Raises ``NamespaceNotFound``, ``ServedInOtherClusters``, ``CoordinationError``.
        """
        return None if self._clusters is None else await self._clusters.peer_of(namespace)

    def owns(self, topic: TopicName) -> bool:
        """Whether this broker serves ``topic`` now, from memory alone: what is owned stays owned
        while ZooKeeper is away, and while the namespace's records are read anew."""
        return self.owned.serves(self.rings.last_bundle_of(topic))

    def leaves_with(self, bundle: Bundle, topic: TopicName) -> bool:
        """Whether ``topic`` is no longer served once ``bundle`` is handed on: it is in that bundle,
        or in none of this broker's. From memory alone."""
        present = self.rings.last_bundle_of(topic)
        return present is None or present == bundle or present not in self.owned.generations

    async def owner_of(self, bundle: Bundle, *, authoritative: bool = False) -> Owner:
        """The owner of ``bundle``, as ``owner`` finds it. Raises as ``owner`` does."""
        # The way of nearly all lookups: no ``await``, no lock, no request.
        known = self._known_owner_of(bundle)
        if known is not None:
            return known
        # Of many lookups at once one asks ZooKeeper; while the bundle is unloaded, all wait.
        async with self.owned.lock(bundle):
            # Again: the lookup that had the lock before may have found it.
            known = self._known_owner_of(bundle)
            if known is not None:
                return known
            # Before ZooKeeper is asked: where it does not answer, clients shall try another broker
            # at once, and not wait for a request to time out.
            self.owned.check_ready()
            # The node may change while the lines below await: ``acquire`` creates it only where it
            # is missing, and returns what it finds else.
            found = await self._owners.read(bundle)
            # A lookup may come with a bundle of a ring that has been split since. To acquire it
            # would serve its topics twice.
            ring = await self.rings.ring_of(bundle.namespace)
            if ring.bundle_of(bundle.lower) != bundle:
                raise ServiceNotReady(f"bundle {bundle} was split: look the topic up again")
            # A free bundle: this broker acquires it where it is placed here; else the client is
            # sent on.
            if found is Unowned.NO_BROKER:
                here, view = self.address.broker_id, await self._view_brokers()
                broker_id, reason = self._place(bundle, view, authoritative=authoritative)
                if broker_id != here:
                    # So it is with the health check's topic of a broker that has ended: there is no
                    # URL to redirect to.
                    if broker_id not in view.loads:
                        raise ServiceNotReady(
                            f"broker {broker_id} is to serve {bundle} and does not run"
                        )
                    return candidate(view.loads[broker_id], reason)
                found = await self._acquire(bundle)
            elif found is Unowned.OWN_PAST:
                # Every other broker sees us as the owner, and redirects clients here: placing the
                # bundle elsewhere would redirect them back and forth.
                found = await self._acquire(bundle)
            # ``acquire`` may have found that another broker was faster: then that one is the owner.
            if isinstance(found, BundleNode):
                return found.owner
            raise ServiceNotReady(f"bundle {bundle} cannot be served now: {found.value}")

    async def have_acquired(self, bundle: Bundle) -> None:
        """Have a bundle acquired that no broker owns, by the broker that is chosen for it. Raises
        as ``owner`` does, and what asking that broker raises."""
        # Where this broker is chosen, ``owner_of`` has acquired it.
        owner = await self.owner_of(bundle)
        if owner.is_redirect:
            await self._assign(bundle, owner)

    async def present_owner_of(self, bundle: Bundle) -> Owner | None:
        """The owner of ``bundle``, None where no broker owns it; none acquires it for that.

        Raises ``CoordinationError``.
        """
        # ``owner_of`` would acquire a free bundle, or have it placed: listing topics must not.
        known = self._known_owner_of(bundle)
        if known is not None:
            return known
        # The lock, as ``owner_of`` takes it: while the bundle is released it has no owner, and the
        # answer that comes after the release is the one that lasts.
        async with self.owned.lock(bundle):
            if bundle in self.owned.generations:
                return self._self
            # A node that an earlier run of this broker left behind counts as no owner: this broker
            # does not serve the bundle until a lookup has it taken over.
            found = await self._owners.read(bundle)
        return found.owner if isinstance(found, BundleNode) else None

    def _known_owner_of(self, bundle: Bundle) -> Owner | None:
        # This broker's own bundles first: the cache does not have them. While one is released its
        # owner is not known, and lookups wait for the lock.
        if bundle in self.owned.generations:
            return self._self if self.owned.serves(bundle) else None
        known = self._owners.known(bundle)
        return known.owner if isinstance(known, BundleNode) else None

    def _place(
        self, bundle: Bundle, view: BrokersView, *, authoritative: bool
    ) -> tuple[str, LookupReason]:
        # An expired destination is ignored; ``destine`` limits how many there are. A broker that
        # led before may still hold some: ``place`` sends the lookup to the present leader before it
        # looks at them.
        destination, until_s = self._destinations.get(bundle, ("", 0.0))
        return place(
            *(bundle, self.address.broker_id, view, self._placement),
            authoritative=authoritative,
            is_retired=self.owned.is_retired,
            destination=destination if asyncio.get_running_loop().time() < until_s else None,
        )

    def destine(self, bundle: Bundle, broker_id: str) -> None:
        """Choose ``broker_id`` for ``bundle`` for ``DESTINED_S`` seconds, as long as this broker
        leads. Called before the bundle's owner is asked to give it up."""
        # Taken out first, so that a later choice for the same bundle is the newest in the order:
        # the map is in the order of expiry, and drops the oldest ones where it is full.
        self._destinations.pop(bundle, None)
        while len(self._destinations) >= DESTINED_MAX:
            self._destinations.popitem(last=False)
        until_s = asyncio.get_running_loop().time() + DESTINED_S
        self._destinations[bundle] = broker_id, until_s

    async def _acquire(self, bundle: Bundle) -> BundleNode | Unowned:
        try:
            # The lock of the bundle is held: ``owner_of`` is the only caller.
            claim = await self.owned.acquire(bundle)
        finally:
            # What the cache knows of the bundle is out of date, even after an error: ZooKeeper may
            # have made the node and the answer may have been lost.
            self._owners.forget(bundle)
        if claim.is_ours:
            return BundleNode(self._self, claim.stat.created_zxid)
        return self._owners.node(claim.value, claim.stat)

    # This broker's bundles

    def suspect(self, topic: TopicName) -> None:
        """Check whether this broker still owns the bundle of ``topic``, or give it up: another
        broker has fenced the log of the topic or written to a cursor of it, as its owner does."""
        # None where the topic's namespace was never looked up: then no bundle of it is owned.
        bundle = self.rings.last_bundle_of(topic)
        if bundle is not None:
            self.owned.suspect(bundle)

    async def unload(self, bundle: Bundle, destination: str | None = None) -> None:
        """Close the bundle's topics, and have ``destination`` (a broker's id), or the broker that
        is chosen for it, acquire it; where that fails, any broker may, as for any bundle that none
        owns. Raises ``NotOwned``."""

        async def hand_on(bundle: Bundle) -> Owner | None:
            # Called when the bundle's node is deleted, so that another broker can acquire it, and
            # before the clients of its topics are told where to go.
            try:
                here, view = self.address.broker_id, await self._view_brokers()
                if destination is None:
                    # Without a destination the choice is made as for a lookup. On the leader that
                    # is its own choice; on any other broker ``place`` names the leader, which
                    # ``assign`` asks to choose.
                    broker_id, reason = self._place(bundle, view, authoritative=False)
                else:
                    broker_id, reason = destination, LookupReason.CHOSEN
                # Placed on this broker, it waits for a lookup: clients may never come back for it.
                if broker_id == here or broker_id not in view.loads:
                    return None
                # Returns once the other broker has acquired it, or raises: clients are sent to an
                # owner that serves.
                await self._assign(bundle, candidate(view.loads[broker_id], reason))
                # Not simply that broker: a lookup may have led elsewhere, and the leader chooses
                # again where only it was asked.
                return await self.present_owner_of(bundle)
            except GemingaError as error:
                # No failure of the unloading: the bundle is released by now, and the next lookup
                # has it acquired.
                extra = {"bundle": str(bundle), "to": destination or "any", "why": str(error)}
                log.info("bundle not handed on", extra=extra)
                return None

        await self.owned.unload(bundle, hand_on)

    async def retire(self, budget_s: float) -> None:
        """Acquire nothing any more, and hand all bundles on to other brokers: this broker is about
        to end, and has deleted its registration.

        What is not begun within ``budget_s`` seconds is given up on closing; so is everything where
        no other broker lives, or ZooKeeper does not answer.
        """
        # The budget limits when an unloading begins, not how long it takes: one that has begun is
        # worth finishing, as its topics are closed already.
        loop = asyncio.get_running_loop()
        begin_by_s = loop.time() + budget_s
        # Before the first await: from now on no lookup may acquire what is about to be handed on.
        self.owned.is_retired = True
        try:
            others = (await self._view_brokers()).loads.keys() - {self.address.broker_id}
        except CoordinationError:
            # Without ZooKeeper no other broker can acquire anything: the bundles are given up on
            # closing.
            return

        async def unload(bundle: Bundle) -> None:
            if loop.time() < begin_by_s:
                # It may have been lost or unloaded since the list was made.
                with suppress(NotOwned, CoordinationError):
                    await self.unload(bundle)

        # Without another broker, closing their topics here would only add to the pause.
        if others:
            # A copy: each unloading takes its bundle out of ``generations``, and a lost session all
            # of them.
            bundles = deque(self.owned.generations)
            count = len(bundles)
            await WorkPool(HANDED_ON_AT_ONCE_MAX).run(unload, bundles)
            left = len(self.owned.generations)
            log.info("bundles handed on", extra={"handed_on": count - left, "left": left})

    async def split(self, bundle: Bundle, boundaries: Sequence[int]) -> list[Bundle]:
        """Split a bundle of this broker's at ``boundaries`` (ascending, inside of it); its topics
        go on in the pieces, which are this broker's too. Raises ``NotOwned``, ``RecordContended``,
        ``ServiceNotReady``, ``CoordinationError``."""
        # The pieces have the outer boundaries of the bundle: together they cover exactly its
        # hashes.
        children = pieces(bundle, boundaries)
        namespace, texts = bundle.namespace, [f"0x{at:08x}" for at in boundaries]
        lower, upper = f"0x{bundle.lower:08x}", f"0x{bundle.upper:08x}"

        # Called once the pieces are this broker's, and before the bundle is given up.
        async def write() -> None:
            await self._namespaces.cut_bundle(namespace, lower, upper, texts)
            # Read again at once: from here on this broker, too, finds topics in the pieces. Until
            # the next lookup in the namespace, ``rings`` would answer with the ring of before.
            await self.rings.ring_of(namespace)

        try:
            await self.owned.split(bundle, children, write)
        finally:
            # Nodes were made and deleted, or may have been: what the cache knows is out of date.
            for each in (bundle, *children):
                self._owners.forget(each)
        return children

    async def unload_namespace(self, namespace: NamespaceName) -> None:
        """Unload those of a namespace's bundles that are this broker's."""
        # A list, as unloading takes them out of ``generations``.
        owned = [bundle for bundle in self.owned.generations if bundle.namespace == namespace]
        # Side by side, without a bound: an operator asks for one namespace, and topics are closed a
        # limited number at once (``TopicDirectory``).
        await asyncio.gather(*(self.unload(bundle) for bundle in owned))

    def _is_past(self, record: BundleOwner) -> bool:
        # With listeners the web URL need not contain the broker's id, so it is compared as well.
        web_url = record.http_url or record.http_url_tls or ""
        return web_url == self.address.rest_url or broker_id_of_url(web_url) in self._past_ids
