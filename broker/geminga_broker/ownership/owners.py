"""The owners of bundles according to ZooKeeper, kept under watches until they change.

Nothing is acquired here. ``OwnedBundles`` has this broker's own bundles: look there first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_cluster.watched import Watched
from geminga_protocol.records.cluster.ownership import BundleOwner
from geminga_runtime.coordination import Coordination, NodeStat, OnChange

# Those of 100,000 bundles take about 60 MB here, and their watches 10 MB in ZooKeeper.
OWNERS_MAX = 100_000


class Unowned(Enum):
    """Why there is no owner to name."""

    # Never taken for ``NO_BROKER``: a broker acquires a bundle only after ZooKeeper answered that
    # no broker owns it.
    NOT_KNOWN = "it must be read from ZooKeeper"
    NO_BROKER = "no broker owns it: there is no node"
    OWN_PAST = "this broker made its node in an earlier run, or by a request that got no answer"
    GIVEN_UP = "its owner is giving it up"


@dataclass(frozen=True, slots=True)
class BundleNode:
    """A bundle's node in ZooKeeper."""

    # Where clients, and brokers that hand a request on, reach the owner. Decoded once for each
    # node: all lookups of the bundle share this object.
    owner: Owner
    # The node's creation zxid: later owners have higher ones, which tells news from old answers.
    generation: int


class OwnerCache:
    """The owners of the bundles that were looked up.

    ``is_past(record)`` recognizes a record that an earlier run of this broker left behind.
    """

    def __init__(
        self, coordination: Coordination, *, is_past: Callable[[BundleOwner], bool]
    ) -> None:
        self._coordination = coordination
        # Tells by the addresses in a record, not by its session: the session that made an old node
        # is gone, and ZooKeeper keeps the node until that session times out.
        self._is_past = is_past
        # ``holds_changed=False``: a changed node is forgotten at once. No answer is better than one
        # that is known to be wrong, since clients ask again.
        self._nodes = Watched(coordination, self._ask, entries_max=OWNERS_MAX, holds_changed=False)

    def known(self, bundle: Bundle) -> BundleNode | Unowned:
        """The owner of the bundle from memory alone."""
        # ``Watched`` also keeps that there is no node, as None: hence two questions. ``keeps``
        # first: ``known`` answers None for a bundle that was never read, too, and a caller that
        # took that for ``NO_BROKER`` would place a bundle that another broker serves.
        path = bundle.path
        if not self._nodes.keeps(path):
            return Unowned.NOT_KNOWN
        return self._nodes.known(path) or Unowned.NO_BROKER

    async def read(self, bundle: Bundle) -> BundleNode | Unowned:
        """The owner of the bundle, read from ZooKeeper where it is not known; never ``NOT_KNOWN``.

        Raises ``CoordinationError``.
        """
        # None: there is no node.
        return await self._nodes.get(bundle.path) or Unowned.NO_BROKER

    def forget(self, bundle: Bundle) -> None:
        """Forget the bundle: this broker changes its node, or found another than is kept."""
        # ``Watched`` also drops the answer of a read that is under way: ZooKeeper may have given it
        # before this broker wrote the node.
        self._nodes.forget(bundle.path)

    def node(self, value: bytes, stat: NodeStat) -> BundleNode | Unowned:
        """Decode a node that was read by other means; it is not kept."""
        # A node that cannot be decoded raises ``MalformedRecord``: the lookup fails, and the client
        # retries. To take the bundle over instead might serve its topics twice.
        record = BundleOwner.decode(value)
        # First: a node of an earlier run may be disabled, and is taken over all the same.
        if self._is_past(record):
            return Unowned.OWN_PAST
        # The old owner closes the bundle's topics and deletes the node when it is done: only then
        # may another broker acquire the bundle. Upstream's brokers set the mark, this broker never
        # does.
        if record.disabled:
            return Unowned.GIVEN_UP
        # A record leaves out what its broker does not serve, while ``Owner`` has "" there. It is
        # another broker's: those of this one, of this run too, are "past" above.
        owner = Owner(
            record.native_url or "",
            record.native_url_tls or "",
            record.http_url or "",
            record.http_url_tls or "",
            is_self=False,
            listeners=record.advertised_listeners,
        )
        return BundleNode(owner, stat.created_zxid)

    async def _ask(self, path: str, on_change: OnChange) -> BundleNode | Unowned:
        # One read, which leaves the watch: ``Watched`` drops the answer when the node changes, and
        # reads a missing node by ``exists``, so that a later creation is noticed as well.
        return self.node(*await self._coordination.get(path, on_change=on_change))
