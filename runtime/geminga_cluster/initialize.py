"""A new cluster's first records in ZooKeeper, as upstream's metadata setup writes them.

On an empty ZooKeeper all nodes are created in one transaction: one round trip, and no half. Where
some are there (a BookKeeper's, a Java cluster's, our own of an earlier attempt) the missing ones
are added and the cluster is entered into the tenants and namespaces that lack it. The cluster's own
record comes last: where it stands, everything does, and repeating is harmless.

Where clusters share a configuration store, it gets the clusters, tenants, policies and partitioned
topics, once the rest stands in the cluster's own ZooKeeper.

Facts: ``PulsarClusterMetadataSetup`` (tenants ``public`` and ``pulsar``, their namespaces of 16
bundles, the coordinators' topic), ``PulsarWorkerService`` (``public/functions``: its messages are
kept for ever, its bundles are the broker's default number) and BookKeeper's ``initNewCluster``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
# The broker's setting defaultNumberOfNamespaceBundles: what a namespace gets that asks for none.
BUNDLES_DEFAULT = 4
TRANSACTION_COORDINATORS = 16
# Each means that another process changed a record between our reading and our writing it; of
# brokers that start together all but one find the records complete by then.
ATTEMPTS_MAX = 5
FOREVER = RetentionPolicies(time_minutes=-1, size_mib=-1)

_FUNCTIONS = "public/functions"
# The namespaces that each cluster has a part in.
_ENTERED: tuple[str, ...] = ("public/default", "pulsar/system", _FUNCTIONS)


@dataclass(frozen=True, slots=True)
class ClusterUrls:
    """Where other clusters reach this one; an empty URL means "not served"."""

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
    """Write what a cluster starts with; nothing that is there is changed, but for what is missing.

    ``configuration`` is the configuration store, where that is not the cluster's ZooKeeper.
    ``instance_id`` is a new UUID, used if BookKeeper has none yet. With ``replace_urls`` a known
    cluster gets the URLs given: for a cluster whose ports may have changed. Brokers that start
    together do this at the same time: where another process changes the same records, it is
    repeated, ``ATTEMPTS_MAX`` times at most. Raises ``CoordinationError``.
    """
    local, nodes = _local_nodes(instance_id), _configuration_nodes(cluster, urls)
    if configuration is None or configuration is coordination:
        configuration, nodes, entered = coordination, local | nodes, _ENTERED
    else:
        # All functions workers of clusters that share their topics would be one group of workers.
        entered = tuple(name for name in _ENTERED if name != _FUNCTIONS)
        await _create_all(coordination, local)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            if await _create_all(configuration, nodes, but_last=True):
                return
            await _enter(configuration, cluster, entered)
            await _create(configuration, cluster_path(cluster), nodes[cluster_path(cluster)])
        except VersionMismatch:
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            break
    if replace_urls:
        await configuration.set(cluster_path(cluster), urls.record().encode())


async def is_initialized(coordination: Coordination, cluster: str) -> bool:
    """Whether ``initialize_cluster_metadata`` was carried out, by us or by upstream."""
    return await coordination.exists(cluster_path(cluster)) is not None


async def check_initialized(coordination: Coordination, cluster: str) -> None:
    """Raise ``NotInitialized``, which says what to do, unless the cluster is there."""
    if not await is_initialized(coordination, cluster):
        raise NotInitialized(cluster)


def _local_nodes(instance_id: str) -> dict[str, bytes]:
    """What stands in the cluster's own ZooKeeper: path → value, parents before children."""
    return _with_parents(
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


def _configuration_nodes(cluster: str, urls: ClusterUrls) -> dict[str, bytes]:
    """What stands in the configuration store, the same way; the cluster's own record last."""
    return _with_parents(
        {
            cluster_path(GLOBAL_CLUSTER): ClusterData().encode(),
            **{tenant_path(name): record.encode() for name, record in _tenants(cluster).items()},
            **{
                policies_path(name): record.encode()
                for name, record in _namespaces(cluster).items()
            },
            partitioned_topic_path(
                "pulsar/system", "persistent", "transaction_coordinator_assign"
            ): PartitionedTopicMetadata(partitions=TRANSACTION_COORDINATORS).encode(),
            cluster_path(cluster): urls.record().encode(),
        }
    )


def _with_parents(values: Mapping[str, bytes]) -> dict[str, bytes]:
    nodes: dict[str, bytes] = {}
    for path, value in values.items():
        for parent in _parents(path):
            nodes.setdefault(parent, b"")
        nodes[path] = value
    return nodes


def _tenants(cluster: str) -> Mapping[str, TenantInfo]:
    record = TenantInfo(allowed_clusters=(cluster,))
    return {"public": record, "pulsar": record}


def _namespaces(cluster: str) -> Mapping[str, Policies]:
    bundles = BundlesData.equal(BUNDLES_OF_FIRST_NAMESPACES)
    policies = Policies(replication_clusters=(cluster,), bundles=bundles)
    functions = replace(policies, bundles=BundlesData.equal(BUNDLES_DEFAULT), retention=FOREVER)
    return {"public/default": policies, "pulsar/system": policies, _FUNCTIONS: functions}


def _parents(path: str) -> list[str]:
    """``/a/b/c`` → ``/a``, ``/a/b``."""
    parts = path.split("/")[1:]
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


async def _create_all(
    coordination: Coordination, nodes: Mapping[str, bytes], *, but_last: bool = False
) -> bool:
    """Create the nodes in one transaction; where some are there, those that are missing, level by
    level, ``but_last`` without the last one. Whether none was there."""
    try:
        await coordination.transaction([Create(path, value) for path, value in nodes.items()])
    except NodeExists:
        by_depth: dict[int, list[str]] = {}
        for path in list(nodes)[: -1 if but_last else None]:
            by_depth.setdefault(path.count("/"), []).append(path)
        for depth in sorted(by_depth):
            await asyncio.gather(
                *(_create(coordination, path, nodes[path]) for path in by_depth[depth])
            )
        return False
    return True


async def _enter(coordination: Coordination, cluster: str, namespaces: Sequence[str]) -> None:
    """Enter the cluster into the tenants and these namespaces, where it is not."""
    await asyncio.gather(
        *(_enter_tenant(coordination, name, cluster) for name in _tenants(cluster)),
        *(_enter_namespace(coordination, name, cluster) for name in namespaces),
    )


async def _create(coordination: Coordination, path: str, value: bytes) -> None:
    try:
        await coordination.create(path, value)
    except NodeExists:
        return


async def _enter_tenant(coordination: Coordination, tenant: str, cluster: str) -> None:
    value, stat = await coordination.get(tenant_path(tenant))
    record = TenantInfo.decode(value)
    if cluster not in record.allowed_clusters:
        entered = replace(record, allowed_clusters=(*record.allowed_clusters, cluster))
        await coordination.set(tenant_path(tenant), entered.encode(), version=stat.version)


async def _enter_namespace(coordination: Coordination, namespace: str, cluster: str) -> None:
    value, stat = await coordination.get(policies_path(namespace))
    record = Policies.decode(value)
    if cluster not in record.replication_clusters:
        entered = replace(record, replication_clusters=(*record.replication_clusters, cluster))
        await coordination.set(policies_path(namespace), entered.encode(), version=stat.version)
