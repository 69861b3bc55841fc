"""The bundle ring of every namespace that was looked up, read once and kept until it changes.

A namespace's bundles stand in its local policies (``/admin/local-policies``), where splits are
written; a namespace that was never served has none yet, and its policies (``/admin/policies``) say
how it begins. The first broker that serves it copies them over, as upstream does, so that both
kinds of broker agree on the cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_broker.ownership.assignment.bundles import (
    Bundle,
    BundleRing,
    broker_of_namespace,
    full_ring,
    parse_boundary,
)
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData

# More namespaces than any one cluster of ours serves; a ring of 16 bundles takes 2 KB.
RINGS_MAX = 10_000


@dataclass(slots=True, eq=False)
class Rings:
    """Bundle rings by namespace."""

    # Keeps the records and watches them.
    namespaces: Namespaces
    # Beside each ring the record it was built from: a changed record is another object. At most
    # ``RINGS_MAX``. Rings of changed records stay until they are asked for again, which
    # ``last_bundle_of`` relies on.
    _rings: dict[NamespaceName, tuple[BundlesData, BundleRing]] = field(
        default_factory=dict[NamespaceName, tuple[BundlesData, BundleRing]], init=False
    )

    async def bundle_of(self, topic: TopicName) -> Bundle:
        """The bundle of a topic, which need not exist. Raises ``NamespaceNotFound``."""
        return (await self.ring_of(topic.namespace)).bundle_of(topic.hash)

    def last_bundle_of(self, topic: TopicName) -> Bundle | None:
        """The bundle of a topic in the ring as it was read last; None if it was never read.

        From memory alone: the ring may have changed since, as while ZooKeeper is away.
        """
        namespace = topic.namespace
        # A broker's own namespace has no record: ``Namespaces`` would raise ``NamespaceNotFound``.
        if broker_of_namespace(namespace) is not None:
            return full_ring(namespace).bundle_of(topic.hash)
        record = self.namespaces.known_bundles(namespace)
        if record is not None:
            return self._ring(namespace, record).bundle_of(topic.hash)
        # The record changed, and was not read again yet. So it is after each reconnection to
        # ZooKeeper, too, when ``Namespaces`` has dropped all records. A broker that denied its own
        # topics until they are read again would disconnect their clients for nothing.
        kept = self._rings.get(namespace)
        return None if kept is None else kept[1].bundle_of(topic.hash)

    async def ring_of(self, namespace: NamespaceName) -> BundleRing:
        """All bundles of a namespace. Raises ``NamespaceNotFound``, ``InvalidBundles``."""
        # As in ``last_bundle_of``: no record says how a broker's own namespace is cut.
        if broker_of_namespace(namespace) is not None:
            return full_ring(namespace)
        return self._ring(namespace, await self.namespaces.bundles(namespace))

    def _ring(self, namespace: NamespaceName, record: BundlesData) -> BundleRing:
        kept = self._rings.get(namespace)
        # ``Namespaces`` gives the same object until the record changes. Identity, not equality:
        # each lookup comes here, and a record may have thousands of boundaries. An equal record
        # that was read again only builds the same ring once more.
        if kept is not None and kept[0] is record:
            return kept[1]
        # Raises for a record that was written by hand and is wrong: then nothing is kept, and each
        # lookup of the namespace raises until the record is mended.
        ring = BundleRing(namespace, [parse_boundary(text) for text in record.boundaries])
        # The one that was built first goes; it is built again from its record when it is asked for.
        while len(self._rings) >= RINGS_MAX:
            del self._rings[next(iter(self._rings))]
        self._rings[namespace] = (record, ring)
        return ring
