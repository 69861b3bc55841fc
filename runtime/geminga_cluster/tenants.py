"""The tenants: who administers them and which clusters they may use, under ``/admin/policies``."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from geminga_cluster.errors import TenantExists, TenantNotEmpty, TenantNotFound
from geminga_cluster.watched import watched_values
from geminga_protocol.pulsar.topics.topic_names import is_entity_name
from geminga_protocol.records.cluster.namespaces import LOCAL_POLICIES_PATH
from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH
from geminga_protocol.records.cluster.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga_protocol.records.cluster.tenants import POLICIES_PATH, TenantInfo, tenant_path
from geminga_protocol.records.topics.managed_ledger import MANAGED_LEDGERS_PATH
from geminga_runtime.coordination import (
    Coordination,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
)

# Below these, deleted namespaces of a tenant leave an empty parent in the cluster's own ZooKeeper.
_LEFT_EMPTY = (LOCAL_POLICIES_PATH, MANAGED_LEDGERS_PATH, OWNERSHIP_PATH)


class Tenants:
    """The tenants. Their namespaces are the children of their nodes.

    ``configuration`` is the configuration store, where that is not the cluster's ZooKeeper.
    """

    def __init__(
        self, coordination: Coordination, configuration: Coordination | None = None
    ) -> None:
        self._coordination = coordination
        self._configuration = configuration or coordination
        self._records = watched_values(self._configuration, TenantInfo.decode)

    @staticmethod
    def _path(name: str) -> str:
        """The tenant's node. Raises ``TenantNotFound`` for a name that no tenant can have: its path
        could be that of another record, as with ``tenant/namespace``."""
        if not is_entity_name(name):
            raise TenantNotFound(name)
        return tenant_path(name)

    async def names(self) -> list[str]:
        """The names of the tenants, sorted."""
        try:
            # Not cached: the list is asked for by operators, and once for each look at all topics.
            return await self._configuration.children(POLICIES_PATH)
        except NodeMissing:
            return []

    async def get(self, name: str) -> TenantInfo:
        """A tenant's record. Raises ``TenantNotFound``."""
        record = await self._records.get(self._path(name))
        if record is None:
            raise TenantNotFound(name)
        return record

    async def create(self, name: str, record: TenantInfo) -> None:
        """Create a tenant. Raises ``TenantExists``."""
        path = tenant_path(name)
        try:
            await self._configuration.create(path, record.encode(), make_parents=True)
        except NodeExists:
            raise TenantExists(name) from None
        finally:
            # Also after an error: a request without an answer may have been carried out. A read
            # that follows this write must not be answered from before it.
            self._records.forget(path)

    async def update(self, name: str, record: TenantInfo) -> None:
        """Replace a tenant's record. Raises ``TenantNotFound``."""
        path = self._path(name)
        try:
            # Without a version, as with clusters: a request replaces the record as a whole.
            await self._configuration.set(path, record.encode())
        except NodeMissing:
            raise TenantNotFound(name) from None
        finally:
            self._records.forget(path)

    async def delete(self, name: str) -> None:
        """Delete a tenant without namespaces. Raises ``TenantNotFound``, ``TenantNotEmpty``."""
        path = self._path(name)
        try:
            await self._configuration.delete(path)
        except NodeMissing:
            raise TenantNotFound(name) from None
        except NodeNotEmpty:
            # ZooKeeper decides, not a list that was read before: a namespace that is created at
            # this moment is a child of the node, and keeps the tenant.
            raise TenantNotEmpty(name) from None
        finally:
            self._records.forget(path)
        # After the record: an interruption leaves empty parents behind, which do no harm.
        await asyncio.gather(
            *(_delete_empty(self._coordination, f"{root}/{name}") for root in _LEFT_EMPTY),
            _delete_empty(self._configuration, f"{PARTITIONED_TOPICS_PATH}/{name}"),
        )


async def _delete_empty(coordination: Coordination, path: str) -> None:
    # It is not empty where a namespace is being created again.
    with suppress(NodeMissing, NodeNotEmpty):
        await coordination.delete(path)
