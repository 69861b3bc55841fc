"""Which bundles this broker owns, who owns the others, and how both change.

A bundle is owned through an ephemeral node ``/namespace/<tenant>/<namespace>/<bundle>`` whose value
names the owner; its creation zxid is the epoch of the ownership. A lookup finds the topic's bundle,
then the node; an unowned bundle is acquired on the spot. What is known is kept under watches, so
that repeated lookups ask nobody. Losing the session gives every bundle up at once: somebody else
may own it now. Which *broker* should own an unowned bundle will be the load manager's choice; until
there is one, it is the broker that was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.address import BrokerAddress, Owner, broker_id_of_url, owner_at
from geminga_broker.ownership.bundles import Bundle, BundleRing
from geminga_broker.ownership.errors import NotOwned
from geminga_broker.ownership.rings import Rings, broker_of_namespace
from geminga_cluster.claims import claim
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.ownership import BundleOwner
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    SessionState,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

OnLost = Callable[[Bundle], None]
OnRelease = Callable[[Bundle], Awaitable[None]]

# Bundles claimed or confirmed side by side after a reconnection; keeps ZooKeeper's queue short.
RESUME_WIDTH = 32


class Ownership(Service):
    """This broker's bundles and everybody's owners."""

    def __init__(
        self,
        coordination: Coordination,
        namespaces: Namespaces,
        address: BrokerAddress,
        *,
        former_broker_ids: Iterable[str] = (),
    ) -> None:
        """``former_broker_ids`` are ids this broker had before: their nodes are its own past."""
        super().__init__()
        self.address = address
        self._coordination = coordination
        self._rings = Rings(namespaces)
        self._self = owner_at(address, is_self=True)
        self._past_ids = frozenset((address.broker_id, *former_broker_ids))
        self._value = BundleOwner(
            native_url=address.broker_url or None,
            native_url_tls=address.broker_url_tls or None,
            http_url=address.http_url or None,
            http_url_tls=address.http_url_tls or None,
            advertised_listeners=address.listeners,
        ).encode()
        self._owned: dict[Bundle, int] = {}  # -> epoch, the zxid that created the node
        self._elsewhere: dict[Bundle, Owner] = {}
        self._releasing: set[Bundle] = set()
        # Guards what a bundle's node is believed to be, while it is read or written.
        self._locks: WeakValueDictionary[Bundle, asyncio.Lock] = WeakValueDictionary()
        self._on_lost: list[OnLost] = []
        self._on_release: list[OnRelease] = []
        self._has_session = True
        self._losses = 0  # sessions given up so far: tells an answer from before the last loss
        self._given_up: list[Bundle] = []

    async def _open(self, stack: AsyncExitStack) -> None:
        self._coordination.on_session(self._session_changed)
        stack.push_async_callback(self._delete_nodes)

    # Lookups

    async def owner(self, topic: TopicName) -> Owner:
        """Who serves ``topic``, which need not exist; an unowned bundle becomes this broker's.

        Raises ``NamespaceNotFound``, ``ServiceNotReady``, ``CoordinationError``.
        """
        return await self.owner_of(await self._rings.bundle_of(topic))

    def known_owner(self, topic: TopicName) -> Owner | None:
        """The same from memory alone; None where ZooKeeper would have to be asked."""
        bundle = self._rings.known_bundle_of(topic)
        return None if bundle is None else self._known_owner_of(bundle)

    def owns(self, topic: TopicName) -> bool:
        """Whether this broker serves ``topic`` now. Asks nobody."""
        bundle = self._rings.known_bundle_of(topic)
        return bundle in self._owned and bundle not in self._releasing

    def leaves_with(self, bundle: Bundle, topic: TopicName) -> bool:
        """Whether ``topic`` is not served any more when ``bundle`` is handed on: it lies there, or
        in none that is this broker's. Asks nobody."""
        present = self._rings.known_bundle_of(topic)
        return present == bundle or present not in self._owned

    async def owner_of(self, bundle: Bundle) -> Owner:
        """Who owns ``bundle``, after acquiring it if nobody did. Raises as ``owner`` does."""
        known = self._known_owner_of(bundle)
        if known is not None:
            return known
        async with self._lock(bundle):
            return self._known_owner_of(bundle) or await self._claim(bundle)

    async def bundle_of(self, topic: TopicName) -> Bundle:
        """The bundle ``topic`` falls into. Raises ``NamespaceNotFound``."""
        return await self._rings.bundle_of(topic)

    async def ring_of(self, namespace: NamespaceName) -> BundleRing:
        """All bundles of a namespace. Raises ``NamespaceNotFound``."""
        return await self._rings.ring_of(namespace)

    def epoch(self, bundle: Bundle) -> int:
        """When this broker's ownership began, as a zxid: later owners have higher ones.

        Raises ``NotOwned``.
        """
        try:
            return self._owned[bundle]
        except KeyError:
            raise NotOwned(str(bundle)) from None

    def owned(self) -> list[Bundle]:
        """The bundles this broker owns, in no order."""
        return list(self._owned)

    # Giving up

    def on_lost(self, callback: OnLost) -> None:
        """Call ``callback(bundle)`` when a bundle stops being ours: stop serving it at once."""
        self._on_lost.append(callback)

    def on_release(self, callback: OnRelease) -> None:
        """Await ``callback(bundle)`` before a bundle is handed on: close its topics in order."""
        self._on_release.append(callback)

    async def unload(self, bundle: Bundle) -> None:
        """Close the bundle's topics, then let anybody acquire it. Raises ``NotOwned``."""
        async with self._lock(bundle):
            if bundle not in self._owned:
                raise NotOwned(str(bundle))
            self._releasing.add(bundle)
            try:
                await asyncio.gather(*(release(bundle) for release in self._on_release))
                # The session may have ended meanwhile, and the node may be somebody else's.
                if self._owned.pop(bundle, None) is not None:
                    await self._delete_node(bundle)
            finally:
                self._releasing.discard(bundle)
        log.info("bundle unloaded", extra={"bundle": str(bundle)})

    async def unload_namespace(self, namespace: NamespaceName) -> None:
        """Unload those of a namespace's bundles that are this broker's."""
        owned = [bundle for bundle in self._owned if bundle.namespace == namespace]
        await asyncio.gather(*(self.unload(bundle) for bundle in owned))

    def _lose(self, bundle: Bundle, reason: str) -> None:
        if self._owned.pop(bundle, None) is None:
            return
        log.warning("bundle lost", extra={"bundle": str(bundle), "reason": reason})
        for callback in self._on_lost:
            callback(bundle)

    # One bundle's node

    def _lock(self, bundle: Bundle) -> asyncio.Lock:
        return self._locks.setdefault(bundle, asyncio.Lock())

    def _known_owner_of(self, bundle: Bundle) -> Owner | None:
        if bundle in self._owned:
            return None if bundle in self._releasing else self._self
        return self._elsewhere.get(bundle)

    async def _claim(self, bundle: Bundle) -> Owner:
        """Acquire the bundle or learn whose it is; its lock is held."""
        if self._is_closing or not self._has_session:
            raise ServiceNotReady("this broker owns nothing now: it closes, or lost its session")
        sole_broker = broker_of_namespace(bundle.namespace)
        if sole_broker not in (None, self.address.broker_id):
            return await self._read_owner(bundle)
        losses = self._losses
        is_changed = False

        def changed() -> None:
            nonlocal is_changed
            is_changed = True
            self._node_changed(bundle)

        node = await claim(
            self._coordination,
            bundle.path,
            self._value,
            is_stale=self._is_past,
            on_change=changed,
        )
        if losses != self._losses:
            raise ServiceNotReady("the session with ZooKeeper was lost while a bundle was acquired")
        if node.is_ours:
            self._owned[bundle] = node.stat.created_zxid
            log.info("bundle acquired", extra={"bundle": str(bundle)})
            if is_changed:
                self._node_changed(bundle)  # the watch is spent; look again and set a new one
            return self._self
        owner = _owner_in(bundle, node.value)
        if not is_changed:
            self._elsewhere[bundle] = owner
        return owner

    async def _read_owner(self, bundle: Bundle) -> Owner:
        """The owner of another broker's own namespace, which nobody else may acquire."""
        try:
            value, _ = await self._coordination.get(bundle.path)
        except NodeMissing:
            raise ServiceNotReady(f"the broker of {bundle.namespace} is not running") from None
        return _owner_in(bundle, value)

    def _is_past(self, value: bytes) -> bool:
        record = BundleOwner.decode(value)
        # With listeners the URL need not be made of the id.
        web_url = record.http_url or record.http_url_tls or ""
        return web_url == self.address.http_url or broker_id_of_url(web_url) in self._past_ids

    def _node_changed(self, bundle: Bundle) -> None:
        self._elsewhere.pop(bundle, None)
        if bundle in self._owned:
            self.spawn(self._confirm(bundle), name=f"confirm {bundle}")

    async def _confirm(self, bundle: Bundle) -> None:
        """Look whether an owned bundle's node is still ours, and watch it again."""
        async with self._lock(bundle):
            if bundle not in self._owned:
                return
            try:
                _, stat = await self._coordination.get(
                    bundle.path, on_change=lambda: self._node_changed(bundle)
                )
            except NodeMissing:
                self._lose(bundle, "its node is gone")
                return
            except CoordinationError:
                return  # the session's own events decide what becomes of the bundle
            if stat.ephemeral_owner != self._coordination.session_id:
                self._lose(bundle, "somebody else owns its node")

    async def _delete_node(self, bundle: Bundle) -> None:
        try:
            await self._coordination.delete(bundle.path)
        except NodeMissing:
            return

    async def _delete_nodes(self) -> None:
        """On closing: successors need not wait for the session's end."""
        bundles = list(self._owned)
        self._owned.clear()
        await asyncio.gather(
            *(self._delete_node(bundle) for bundle in bundles), return_exceptions=True
        )

    # The session

    def _session_changed(self, state: SessionState) -> None:
        # While SUSPENDED the session still protects what is owned; its holder reports EXPIRED
        # before the server could give a bundle to somebody else.
        if state is SessionState.EXPIRED:
            self._give_up_all()
        elif state is SessionState.CONNECTED and not self._is_closing:
            self._has_session = True
            self._elsewhere.clear()
            given_up, self._given_up = self._given_up, []
            self.spawn(self._resume(given_up), name="resume ownership")

    def _give_up_all(self) -> None:
        self._has_session = False
        self._losses += 1
        self._elsewhere.clear()
        bundles = list(self._owned)
        self._given_up.extend(bundles)
        for bundle in bundles:
            self._lose(bundle, "the session with ZooKeeper expired")

    async def _resume(self, given_up: list[Bundle]) -> None:
        """After a reconnection: confirm what is still held, take back what was given up."""
        width = asyncio.Semaphore(RESUME_WIDTH)

        async def take_back(bundle: Bundle) -> None:
            async with width:
                try:
                    await self.owner_of(bundle)
                except GemingaError as error:
                    log.info(
                        "bundle not taken back", extra={"bundle": str(bundle), "why": str(error)}
                    )

        async def confirm(bundle: Bundle) -> None:
            async with width:
                await self._confirm(bundle)

        held = list(self._owned)
        await asyncio.gather(*map(confirm, held), *map(take_back, given_up))


def _owner_in(bundle: Bundle, value: bytes) -> Owner:
    record = BundleOwner.decode(value)
    if record.disabled:
        raise ServiceNotReady(f"the owner of {bundle} is giving it up")
    return Owner(
        record.native_url or "",
        record.native_url_tls or "",
        record.http_url or "",
        record.http_url_tls or "",
        is_self=False,
        listeners=record.advertised_listeners,
    )
