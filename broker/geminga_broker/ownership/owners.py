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

    # Never taken for ``NOBODY``: a broker acquires a bundle only after ZooKeeper answered that no
    # broker owns it.
    NOT_KNOWN = "it must be read from ZooKeeper"
    NOBODY = "no broker owns it: there is no node"
    OWN_PAST = "this broker made its node in an earlier run, or by a request that got no answer"
    GIVEN_UP = "its owner is giving it up"


@dataclass(frozen=True, slots=True)
class BundleNode:
    """A bundle's node in ZooKeeper."""

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
        self._is_past = is_past
        # ``holds_changed=False``: a changed node is forgotten at once. No answer is better than one
        # that is known to be wrong, since clients ask again.
        self._nodes = Watched(coordination, self._ask, entries_max=OWNERS_MAX, holds_changed=False)

    def known(self, bundle: Bundle) -> BundleNode | Unowned:
        """The owner of the bundle from memory alone."""
        # ``Watched`` also keeps that there is no node, as None: hence two questions.
        path = bundle.path
        if not self._nodes.keeps(path):
            return Unowned.NOT_KNOWN
        return self._nodes.known(path) or Unowned.NOBODY

    async def read(self, bundle: Bundle) -> BundleNode | Unowned:
        """The owner of the bundle, read from ZooKeeper where it is not known; never ``NOT_KNOWN``.

        Raises ``CoordinationError``.
        """
        # None: there is no node.
        return await self._nodes.get(bundle.path) or Unowned.NOBODY

    def forget(self, bundle: Bundle) -> None:
        """Forget the bundle: this broker changes its node, or found another than is kept."""
        self._nodes.forget(bundle.path)

    def node(self, value: bytes, stat: NodeStat) -> BundleNode | Unowned:
        """Decode a node that was read by other means; it is not kept."""
        record = BundleOwner.decode(value)
        # First: a node of an earlier run may be disabled, and is taken over all the same.
        if self._is_past(record):
            return Unowned.OWN_PAST
        if record.disabled:
            return Unowned.GIVEN_UP
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
        return self.node(*await self._coordination.get(path, on_change=on_change))
