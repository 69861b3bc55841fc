"""The namespaces: their policies, and the bundles that their hash rings are cut into.

Policies are under ``/admin/policies``. The bundles of a namespace in this cluster are in its local
policies (``/admin/local-policies``). The first broker that serves the namespace copies them from
the policies, as upstream does; from then on the copy is valid. Where clusters share a configuration
store, it has the policies, and each cluster's own ZooKeeper the local policies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from geminga_cluster.errors import (
    NamespaceExists,
    NamespaceNotFound,
    RecordContended,
    TenantNotFound,
)
from geminga_cluster.watched import watched_values
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.namespaces import (
    BundlesData,
    LocalPolicies,
    Policies,
    local_policies_path,
    policies_path,
)
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH
from geminga_protocol.records.cluster.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga_protocol.records.cluster.tenants import tenant_path
from geminga_protocol.records.topics.managed_ledger import MANAGED_LEDGERS_PATH
from geminga_runtime.coordination import (
    Coordination,
    NodeExists,
    NodeMissing,
    VersionMismatch,
    delete_tree,
)

# A round fails only when another process writes the same record at the same time. More of them in a
# row mean that one writes without end.
UPDATE_ROUNDS_MAX = 16

# Where the records of the namespace ``t/n`` are:
#
#     configuration store    /admin/policies/t/n               its policies: it exists with them
#                            /admin/partitioned-topics/t/n     its partitioned topics, by domain
#     cluster's ZooKeeper    /admin/local-policies/t/n         its bundles in this cluster
#                            /namespace/t/n                    which broker owns which bundle
#                            /managed-ledgers/t/n              its topics, by domain

# The bundles of a namespace whose policies name none: its ring is not cut.
_UNCUT = BundlesData.equal(1)


def serves(cluster: str, policies: Policies) -> bool:
    """Whether ``cluster`` serves the topics of a namespace with these policies: it is one of those
    that the namespace is replicated between, or allowed in. Without any named, all clusters do.
    """
    # ``allowed_clusters``: of PIP-321; older records have none.
    named = (*policies.replication_clusters, *policies.allowed_clusters)
    return cluster in named or not named


class Namespaces:
    """The namespaces of all tenants. Records are kept in memory under watches.

    ``configuration`` is the configuration store, where that is not the cluster's ZooKeeper.
    """

    def __init__(
        self, coordination: Coordination, configuration: Coordination | None = None
    ) -> None:
        self._coordination = coordination
        self._configuration = configuration or coordination
        # Every topic that is looked up or loaded asks for both.
        self._policies = watched_values(self._configuration, Policies.decode)
        self._local_policies = watched_values(coordination, LocalPolicies.decode)

    async def names(self, tenant: str) -> list[NamespaceName]:
        """A tenant's namespaces, sorted. Raises ``TenantNotFound``."""
        try:
            # Not cached: namespaces are seldom listed.
            names = await self._configuration.children(tenant_path(tenant))
        except NodeMissing:
            raise TenantNotFound(tenant) from None
        return [NamespaceName(tenant, name) for name in names]

    async def exists(self, namespace: NamespaceName) -> bool:
        """Whether there is such a namespace."""
        # By its policies, which are cached for every namespace in use.
        return await self._policies.get(policies_path(str(namespace))) is not None

    async def policies(self, namespace: NamespaceName) -> Policies:
        """The namespace's policies. Raises ``NamespaceNotFound``."""
        record = await self._policies.get(policies_path(str(namespace)))
        if record is None:
            raise NamespaceNotFound(str(namespace))
        return record

    def follow(self, on_changed: Callable[[NamespaceName | None], None]) -> None:
        """Call ``on_changed`` when the policies of a namespace that were read here change; with
        None when all may have changed (ZooKeeper was away)."""

        def changed(path: str | None) -> None:
            on_changed(None if path is None else NamespaceName(*path.split("/")[-2:]))

        self._policies.follow(changed)

    async def bundles(self, namespace: NamespaceName) -> BundlesData:
        """The bundles in this cluster. Raises ``NamespaceNotFound``."""
        # One after the other: they are nearly always cached, and needed for every topic.
        policies = await self.policies(namespace)
        path = local_policies_path(str(namespace))
        local = await self._local_policies.get(path)
        # A namespace is marked before its topics are deleted, so that none is loaded again.
        if policies.deleted:
            raise NamespaceNotFound(str(namespace))
        if local is None:
            # The namespace is served for the first time. If another broker is first, its record is
            # valid.
            local = LocalPolicies(bundles=policies.bundles or _UNCUT)
            with suppress(NodeExists):
                await self._coordination.create(path, local.encode(), make_parents=True)
            # What was cached is "there is no such node".
            self._local_policies.forget(path)
            local = await self._local_policies.get(path) or local
        return local.bundles

    def known_bundles(self, namespace: NamespaceName) -> BundlesData | None:
        """The same from memory alone; None where ZooKeeper would have to be read.

        Policies that have just changed, and are not cached now, are no reason for None: a broker
        must not unload a topic because the retention of its namespace was set.
        """
        name = str(namespace)
        local = self._local_policies.known(local_policies_path(name))
        policies = self._policies.known(policies_path(name))
        is_gone = policies.deleted if policies else self._policies.keeps(policies_path(name))
        return None if local is None or is_gone else local.bundles

    async def cut_bundle(
        self, namespace: NamespaceName, lower: str, upper: str, boundaries: Sequence[str]
    ) -> None:
        """Cut the bundle from ``lower`` to ``upper`` at ``boundaries`` (ascending, inside of it),
        all written as ``0x00000000``. Nothing happens where the bundle is cut exactly so already.

        Raises ``NamespaceNotFound``; ``RecordContended`` where the bundle no longer exists, and
        nothing was written; ``CoordinationError``, and the cut may have been written.
        """
        path = local_policies_path(str(namespace))
        await self.bundles(namespace)  # writes the record where there is none
        for _ in range(UPDATE_ROUNDS_MAX):
            try:
                # As in ``update``: the version belongs to this value, and the cache has none.
                value, stat = await self._coordination.get(path)
            except NodeMissing:
                raise NamespaceNotFound(str(namespace)) from None
            record = LocalPolicies.decode(value)
            present = record.bundles.boundaries
            wanted = (lower, *boundaries, upper)
            # Beyond the end where there is no such boundary: no slice from there equals anything
            # below.
            at = present.index(lower) if lower in present else len(present)
            # It is cut already: perhaps by an earlier request of ours that got no answer.
            if present[at : at + len(wanted)] == wanted:
                return
            # The bundle that the caller wants to cut is gone: another broker has cut it elsewhere.
            if present[at : at + 2] != (lower, upper):
                break
            # The new boundaries go between the two of the bundle, so that the list stays ascending.
            cut = (*present[: at + 1], *boundaries, *present[at + 1 :])
            changed = replace(record, bundles=BundlesData(boundaries=cut, num_bundles=len(cut) - 1))
            try:
                await self._coordination.set(path, changed.encode(), version=stat.version)
            except VersionMismatch:
                continue
            except NodeMissing:
                raise NamespaceNotFound(str(namespace)) from None
            finally:
                self._local_policies.forget(path)
            return
        raise RecordContended(f"the bundles of {namespace} were cut otherwise meanwhile")

    async def create(self, namespace: NamespaceName, policies: Policies) -> None:
        """Create a namespace. Raises ``TenantNotFound``, ``NamespaceExists``."""
        # Without its parents: a parent that is missing is a tenant that does not exist.
        path = policies_path(str(namespace))
        try:
            await self._configuration.create(path, policies.encode())
        except NodeMissing:
            raise TenantNotFound(namespace.tenant) from None
        except NodeExists:
            raise NamespaceExists(str(namespace)) from None
        finally:
            self._policies.forget(path)

    async def update(
        self, namespace: NamespaceName, change: Callable[[Policies], Policies]
    ) -> Policies:
        """Replace the policies by ``change(policies)``, which may be called more than once.

        Raises ``NamespaceNotFound``, ``RecordContended``, and what ``change`` raises.
        """
        path = policies_path(str(namespace))
        for _ in range(UPDATE_ROUNDS_MAX):
            try:
                # From ZooKeeper, never from the cache: the version belongs to this value. If
                # another process writes in between, the set fails, and ``change`` gets the newer
                # policies in the next round.
                value, stat = await self._configuration.get(path)
                changed = change(Policies.decode(value))
                await self._configuration.set(path, changed.encode(), version=stat.version)
            except NodeMissing:
                raise NamespaceNotFound(str(namespace)) from None
            except VersionMismatch:
                continue
            finally:
                self._policies.forget(path)
            return changed
        raise RecordContended(f"the policies of {namespace} keep changing while they are changed")

    async def delete(self, namespace: NamespaceName) -> None:
        """Delete a namespace without topics, with its records in all places.

        The policies go last, so that an interrupted deletion can be repeated. Raises
        ``NamespaceNotFound``; ``NodeNotEmpty`` where a topic is stored in it, and nothing was
        deleted.
        """
        name = str(namespace)
        # From the cache, which may lag behind another broker: then the deletions below find
        # nothing.
        if not await self.exists(namespace):
            raise NamespaceNotFound(name)
        # First the nodes below which topics are stored, and only if they are empty: without a
        # topic's node its ledgers could not be found any more.
        stored = f"{MANAGED_LEDGERS_PATH}/{name}"
        with suppress(NodeMissing):
            for domain in await self._coordination.children(stored):
                await self._coordination.delete(f"{stored}/{domain}")
            await self._coordination.delete(stored)
        await asyncio.gather(
            delete_tree(self._configuration, f"{PARTITIONED_TOPICS_PATH}/{name}"),
            delete_tree(self._coordination, f"{OWNERSHIP_PATH}/{name}"),
            delete_tree(self._coordination, local_policies_path(name)),
        )
        # From here on the namespace does not exist. Its local policies went before: if they stayed,
        # a namespace created under this name again would get the old bundles.
        await delete_tree(self._configuration, policies_path(name))
        self._local_policies.forget(local_policies_path(name))
        self._policies.forget(policies_path(name))
