"""A new cluster's first records in ZooKeeper, as upstream's metadata setup writes them.

On an empty ZooKeeper all nodes are created in one transaction: in one round trip, all or none.
Where some exist (BookKeeper's, those of a Java cluster, or of our own earlier attempt) the missing
ones are added, and the cluster is entered into the tenants and namespaces that lack it. The
cluster's own record comes last: where it exists, everything does. Repeating is harmless.

Where clusters share a configuration store, it gets the clusters, tenants, policies and partitioned
topics, after the cluster's own ZooKeeper got the rest.

Facts: ``PulsarClusterMetadataSetup`` (tenants ``public`` and ``pulsar``, their namespaces of 16
bundles, the coordinators' topic), ``PulsarWorkerService`` (``public/functions``: its messages are
retained without limit, its bundles are the broker's default number) and BookKeeper's
``initNewCluster``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from geminga_cluster.errors import NotInitialized
from geminga_protocol.records.cluster.clusters import GLOBAL_CLUSTER, ClusterData, cluster_path
from geminga_protocol.records.cluster.namespaces import (
    LOCAL_POLICIES_PATH,
    BundlesData,
    Policies,
    RetentionPolicies,
    policies_path,
)
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH
from geminga_protocol.records.cluster.partitioned_topics import (
    PartitionedTopicMetadata,
    partitioned_topic_path,
)
from geminga_protocol.records.cluster.tenants import TenantInfo, tenant_path
from geminga_protocol.records.ledgers.layout import LAYOUT_PATH, LedgerLayout
from geminga_protocol.records.ledgers.ledger_metadata import LEDGERS_PATH
from geminga_protocol.records.topics.managed_ledger import MANAGED_LEDGERS_PATH
from geminga_runtime.coordination import (
    Coordination,
    Create,
    NodeExists,
    VersionMismatch,
)

BUNDLES_OF_FIRST_NAMESPACES = 16
# The default of the broker's setting defaultNumberOfNamespaceBundles, for namespaces that are
# created without a number of bundles.
BUNDLES_DEFAULT = 4
TRANSACTION_COORDINATORS = 16
# An attempt fails when another process changes a record between our read and our write. Of brokers
# that start together, one completes the records at each attempt.
ATTEMPTS_MAX = 5
FOREVER = RetentionPolicies(time_minutes=-1, size_mib=-1)

_FUNCTIONS = "public/functions"
# The first tenants and namespaces, into which each cluster is entered.
_TENANTS = ("public", "pulsar")
_NAMESPACES: tuple[str, ...] = ("public/default", "pulsar/system", _FUNCTIONS)


@dataclass(frozen=True, slots=True)
class ClusterUrls:
    """The URLs by which other clusters reach this one; empty: it does not serve that protocol."""

    service_url: str
    broker_service_url: str
    service_url_tls: str = ""
    broker_service_url_tls: str = ""

    def record(self) -> ClusterData:
        """The cluster's record."""
        return ClusterData(
            service_url=self.service_url or None,
            service_url_tls=self.service_url_tls or None,
            broker_service_url=self.broker_service_url or None,
            broker_service_url_tls=self.broker_service_url_tls or None,
        )


async def initialize_cluster_metadata(
    coordination: Coordination,
    cluster: str,
    urls: ClusterUrls,
    *,
    configuration: Coordination | None = None,
    instance_id: str,
    replace_urls: bool = False,
) -> None:
    """Write the records that a cluster starts with. Existing records stay as they are, except that
    the cluster is entered into them.

    ``configuration`` is the configuration store, where that is not the cluster's ZooKeeper.
    ``instance_id`` is a new UUID, used if BookKeeper has none yet. With ``replace_urls`` a known
    cluster gets these URLs, for ports that may have changed. Brokers that start together do this at
    the same time: when another process changes the same records, it is repeated, at most
    ``ATTEMPTS_MAX`` times. Raises ``CoordinationError``.
    """
    # The nodes of the cluster's own ZooKeeper.
    local = _with_parents(
        {
            LAYOUT_PATH: LedgerLayout().encode(),
            f"{LEDGERS_PATH}/INSTANCEID": instance_id.encode(),
            f"{LEDGERS_PATH}/available/readonly": b"",
            f"{LEDGERS_PATH}/cookies": b"",
            "/bookies": b"{}",
            MANAGED_LEDGERS_PATH: b"",
            OWNERSHIP_PATH: b"",
            "/loadbalance/brokers": b"",
            "/schemas": b"",
            "/admin/configuration": b"{}",
            LOCAL_POLICIES_PATH: b"",
        }
    )
    nodes = _configuration_nodes(cluster, urls)
    if configuration is None or configuration is coordination:
        configuration, nodes, entered = coordination, local | nodes, _NAMESPACES
    else:
        # If clusters shared this namespace, all their functions workers would form one group.
        entered = tuple(name for name in _NAMESPACES if name != _FUNCTIONS)
        await _create_all(coordination, local)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            # Created in one transaction, the tenants and namespaces name this cluster already, and
            # the cluster's record has the URLs. That happens once, on an empty ZooKeeper.
            if await _create_all(configuration, nodes, but_last=True):
                return
            # Where one fails, the others go on beside the next attempt. Each is a compare-and-set
            # of one record: to the next attempt they are like another process.
            await asyncio.gather(
                *(_enter_tenant(configuration, name, cluster) for name in _TENANTS),
                *(_enter_namespace(configuration, name, cluster) for name in entered),
            )
            # Last: ``check_initialized`` takes this record as the sign that all others are there.
            await _create(configuration, cluster_path(cluster), nodes[cluster_path(cluster)])
        except VersionMismatch:
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            break
    # After all else, and without a version: the process that starts last knows its ports best.
    if replace_urls:
        await configuration.set(cluster_path(cluster), urls.record().encode())


async def check_initialized(coordination: Coordination, cluster: str) -> None:
    """Raise ``NotInitialized``, which says what to do, unless ``initialize_cluster_metadata`` was
    carried out, by us or by upstream."""
    # This record was created last: where it exists, all others do.
    if await coordination.exists(cluster_path(cluster)) is None:
        raise NotInitialized(cluster)


def _configuration_nodes(cluster: str, urls: ClusterUrls) -> dict[str, bytes]:
    """The nodes of the configuration store; the cluster's own record is the last."""
    # Without administrators: they are an operator's to name.
    tenant = TenantInfo(allowed_clusters=(cluster,))
    bundles = BundlesData.equal(BUNDLES_OF_FIRST_NAMESPACES)
    policies = Policies(replication_clusters=(cluster,), bundles=bundles)
    functions = replace(policies, bundles=BundlesData.equal(BUNDLES_DEFAULT), retention=FOREVER)
    return _with_parents(
        {
            cluster_path(GLOBAL_CLUSTER): ClusterData().encode(),
            **{tenant_path(name): tenant.encode() for name in _TENANTS},
            **{
                policies_path(name): (functions if name == _FUNCTIONS else policies).encode()
                for name in _NAMESPACES
            },
            # Java's brokers assign their transaction coordinators by the partitions of this topic.
            partitioned_topic_path(
                "pulsar/system", "persistent", "transaction_coordinator_assign"
            ): PartitionedTopicMetadata(partitions=TRANSACTION_COORDINATORS).encode(),
            # The last, also in the order of ``_with_parents``: ``but_last`` counts on it.
            cluster_path(cluster): urls.record().encode(),
        }
    )


def _with_parents(values: Mapping[str, bytes]) -> dict[str, bytes]:
    """The nodes, path → value, with those above them, which have no value unless they are given
    one. Parents stand before their children, as a transaction has to create them."""
    nodes: dict[str, bytes] = {}
    for path, value in values.items():
        parts = path.split("/")[1:]
        for count in range(1, len(parts)):
            # A node may be the parent of one before it and have a value of its own: the assignment
            # below keeps its place in the order.
            nodes.setdefault("/" + "/".join(parts[:count]), b"")
        nodes[path] = value
    return nodes


async def _create_all(
    coordination: Coordination, nodes: Mapping[str, bytes], *, but_last: bool = False
) -> bool:
    """Create the nodes in one transaction and return True. If some exist, create the missing ones
    level by level, with ``but_last`` without the last one, and return False."""
    try:
        await coordination.transaction([Create(path, value) for path, value in nodes.items()])
    except NodeExists:
        # Nodes of one depth do not depend on each other: a round trip for each level.
        by_depth: dict[int, list[str]] = {}
        for path in list(nodes)[: -1 if but_last else None]:
            by_depth.setdefault(path.count("/"), []).append(path)
        # From the top down: a parent exists before its children are created.
        for depth in sorted(by_depth):
            await asyncio.gather(
                *(_create(coordination, path, nodes[path]) for path in by_depth[depth])
            )
        return False
    return True


async def _create(coordination: Coordination, path: str, value: bytes) -> None:
    # Another broker that starts at the same time may have created it.
    with suppress(NodeExists):
        await coordination.create(path, value)


async def _enter_tenant(coordination: Coordination, tenant: str, cluster: str) -> None:
    """Allow the tenant to use the cluster. Raises ``VersionMismatch``."""
    value, stat = await coordination.get(tenant_path(tenant))
    record = TenantInfo.decode(value)
    # Compare and set: an administrator, or another cluster, may enter itself at the same time.
    if cluster not in record.allowed_clusters:
        entered = replace(record, allowed_clusters=(*record.allowed_clusters, cluster))
        await coordination.set(tenant_path(tenant), entered.encode(), version=stat.version)


async def _enter_namespace(coordination: Coordination, namespace: str, cluster: str) -> None:
    """Let the cluster serve the namespace. Raises ``VersionMismatch``."""
    value, stat = await coordination.get(policies_path(namespace))
    record = Policies.decode(value)
    if cluster not in record.replication_clusters:
        entered = replace(record, replication_clusters=(*record.replication_clusters, cluster))
        await coordination.set(policies_path(namespace), entered.encode(), version=stat.version)
