"""The clusters that know each other: their addresses, under ``/admin/clusters``."""

from __future__ import annotations

from collections.abc import Callable

from geminga_cluster.errors import ClusterExists, ClusterNotFound
from geminga_cluster.watched import watched_values
from geminga_protocol.pulsar.topics.topic_names import is_entity_name
from geminga_protocol.records.cluster.clusters import (
    CLUSTERS_PATH,
    GLOBAL_CLUSTER,
    ClusterData,
    cluster_path,
)
from geminga_runtime.coordination import Coordination, NodeExists, NodeMissing


class Clusters:
    """The registered clusters. ``global``, which is no cluster, is hidden and never changed."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._records = watched_values(coordination, ClusterData.decode)

    def follow(self, on_changed: Callable[[str | None], None]) -> None:
        """Call ``on_changed`` with the name of a cluster whose record has changed since it was
        read, or may have; with None when all may have."""

        def stale(path: str | None) -> None:
            on_changed(None if path is None else path.rpartition("/")[2])

        self._records.follow(stale)

    @staticmethod
    def _path(name: str) -> str:
        """The cluster's node. Raises ``ClusterNotFound`` for a name that no cluster can have."""
        # Before it becomes a path: ``a/b`` would be the path of another record.
        if name == GLOBAL_CLUSTER or not is_entity_name(name):
            raise ClusterNotFound(name)
        return cluster_path(name)

    async def names(self) -> list[str]:
        """The names of the clusters, sorted."""
        try:
            # Not cached: the list is only asked for by operators' requests.
            names = await self._coordination.children(CLUSTERS_PATH)
        except NodeMissing:  # before the first cluster was registered
            return []
        return [name for name in names if name != GLOBAL_CLUSTER]

    async def get(self, name: str) -> ClusterData:
        """A cluster's addresses. Raises ``ClusterNotFound``."""
        # "There is no such cluster" is cached as well, under a watch on its creation.
        record = await self._records.get(self._path(name))
        if record is None:
            raise ClusterNotFound(name)
        return record

    async def create(self, name: str, record: ClusterData) -> None:
        """Register a cluster. Raises ``ClusterExists``."""
        path = cluster_path(name)
        try:
            await self._coordination.create(path, record.encode(), make_parents=True)
        except NodeExists:
            raise ClusterExists(name) from None
        finally:
            # Also after an error: a request without an answer may have been carried out. A read
            # that follows this write must not be answered from before it.
            self._records.forget(path)

    async def update(self, name: str, record: ClusterData) -> None:
        """Replace a cluster's record. Raises ``ClusterNotFound``."""
        path = self._path(name)
        try:
            # Without a version: a request replaces the record as a whole, and the last one wins.
            await self._coordination.set(path, record.encode())
        except NodeMissing:
            raise ClusterNotFound(name) from None
        finally:
            self._records.forget(path)

    async def delete(self, name: str) -> None:
        """Delete a cluster's record. Raises ``ClusterNotFound``."""
        path = self._path(name)
        try:
            await self._coordination.delete(path)
        except NodeMissing:
            raise ClusterNotFound(name) from None
        finally:
            self._records.forget(path)
