"""A namespace's hash ring cut into bundles: which bundle a topic falls into, and what it is called.

Pure arithmetic on 32-bit hashes. The boundaries are those of ``BundlesData`` (``/admin/policies``
and ``/admin/local-policies``); the hash of a topic name is ``TopicName.hash``.

A ring with n bundles has n + 1 boundaries. Each bundle includes its lower boundary and excludes
its upper one; only the last bundle includes its upper one::

    0x00000000      0x40000000      0x80000000      0xc0000000      0xffffffff
    [-- bundle 0 --)[-- bundle 1 --)[-- bundle 2 --)[-- bundle 3 --]
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from geminga_broker.ownership.errors import InvalidBundles
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.ownership import ownership_path

# The ends of the ring are the least and the greatest 32-bit hash. Upstream has the same ones
# (``NamespaceBundles.FULL_LOWER_BOUND``, ``FULL_UPPER_BOUND``).
HASH_MIN = 0x00000000
HASH_MAX = 0xFFFFFFFF

# ``host:port``: a namespace of the tenant ``pulsar`` without a port is an ordinary one.
_BROKER_ID = re.compile(r"[^/:]+:\d+", re.ASCII)


# Frozen, so that bundles are keys, such as of owners and of locks. Two with the same range are
# equal, also across a change of the ring.
@dataclass(frozen=True, slots=True)
class Bundle:
    """One range of a namespace's ring. ``name`` is ``0x40000000_0x80000000``."""

    namespace: NamespaceName
    lower: int
    # Excluded, but for HASH_MAX: the last bundle of a ring has that hash too.
    upper: int

    @property
    def name(self) -> str:
        """The range as it stands in paths and answers."""
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    @property
    def path(self) -> str:
        """The ephemeral node in ZooKeeper whose creator owns the bundle."""
        return ownership_path(str(self.namespace), self.name)

    def covers(self, topic_hash: int) -> bool:
        """Whether a 32-bit hash falls into the bundle."""
        return self.lower <= topic_hash < self.upper or topic_hash == self.upper == HASH_MAX

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class BundleRing:
    """A namespace's bundles in order; finds a hash's bundle in O(log n)."""

    __slots__ = ("_lowers", "bundles")

    def __init__(self, namespace: NamespaceName, boundaries: Sequence[int]) -> None:
        """``boundaries`` ascend from 0 to 0xffffffff; raises ``InvalidBundles``."""
        check_boundaries(boundaries)
        # In the order of their ranges, without gaps: the lower boundary of each is the upper one of
        # the bundle before.
        self.bundles = tuple(
            Bundle(namespace, lower, upper) for lower, upper in pairwise(boundaries)
        )
        # The last boundary is not among them either, as the last bundle includes it. Without the
        # first: how many of these a hash has reached is the index of its bundle.
        self._lowers = list(boundaries[1:-1])

    def bundle_of(self, topic_hash: int) -> Bundle:
        """The bundle a 32-bit hash falls into."""
        # A hash that equals a boundary belongs to the bundle that begins there: ``bisect_right``.
        return self.bundles[bisect_right(self._lowers, topic_hash)]

    def named(self, name: str) -> Bundle | None:
        """The bundle of that name (``0x…_0x…``), or None."""
        # By name, not by parsing it: a range that is no bundle of the present ring has none.
        return next((bundle for bundle in self.bundles if bundle.name == name), None)


def check_boundaries(boundaries: Sequence[int]) -> None:
    """Raise ``InvalidBundles`` unless the boundaries ascend and cut the whole ring."""
    # The texts are upstream's: admin clients show them.
    if len(boundaries) < 2 or boundaries[0] != HASH_MIN or boundaries[-1] != HASH_MAX:
        ends = [f"0x{boundary:08x}" for boundary in (*boundaries[:1], *boundaries[-1:])]
        raise InvalidBundles(
            "Input bundles do not cover the whole hash range. "
            f"first:{ends[0] if ends else None}, last:{ends[-1] if ends else None}"
        )
    # Equal ones would be a bundle without hashes, descending ones a topic in two bundles.
    if any(a >= b for a, b in pairwise(boundaries)):
        raise InvalidBundles("Bundle boundaries must ascend")


def parse_boundary(text: str) -> int:
    """``"0x40000000"`` → 0x40000000. Raises ``InvalidBundles``."""
    # ``int`` takes more than upstream writes (underscores, no ``0x``), but each such text has one
    # value.
    try:
        value = int(text, 16)
    except ValueError:
        raise InvalidBundles(f"{text!r} is not a hash boundary like 0x40000000") from None
    if not HASH_MIN <= value <= HASH_MAX:
        raise InvalidBundles(f"{text} is outside of 0x00000000..0xffffffff")
    return value


def full_ring(namespace: NamespaceName) -> BundleRing:
    """A ring of one bundle, which a broker's own namespace has: it has no policies that cut it."""
    return BundleRing(namespace, (HASH_MIN, HASH_MAX))


def broker_of_namespace(namespace: NamespaceName) -> str | None:
    """The id of the broker that alone serves this namespace (``pulsar/host:port``), or None.

    Each broker has one, for its health check; it has no policies and one bundle.
    """
    # The tenant may have other namespaces, which are served like any (``pulsar/system``). By its
    # form alone: whether that broker lives is not known here.
    is_a_brokers = namespace.tenant == "pulsar" and _BROKER_ID.fullmatch(namespace.local)
    return namespace.local if is_a_brokers else None
