"""Keeps the averages of ``LoadHistory`` in ZooKeeper, where the next leader finds them.

Leaders of Apache Pulsar read and write the same nodes: those of bundles below
``/loadbalance/bundle-data``, those of brokers below ``/loadbalance/broker-time-average``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from geminga_broker.load_manager.balancing.load_history import BUNDLES_KEPT_MAX
from geminga_protocol.records.cluster.brokers import (
    BUNDLE_DATA_PATH,
    TIME_AVERAGES_PATH,
    BundleData,
    TimeAverageBrokerData,
    bundle_data_path,
    time_average_path,
)
from geminga_protocol.records.encodings.json_records import JsonRecord
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.coordination import Coordination, NodeExists, NodeMissing
from geminga_runtime.work_pool import WorkPool

# Requests that ZooKeeper has of one leader at a time.
REQUESTS_AT_ONCE_MAX = 8


@dataclass(slots=True, eq=False)
class HistoryRecords:
    """The averages in ZooKeeper. All methods raise ``CoordinationError``."""

    coordination: Coordination
    # Shared by reads and writes: a take-over during a write does not double the limit.
    _pool: WorkPool = field(default_factory=lambda: WorkPool(REQUESTS_AT_ONCE_MAX), init=False)

    async def read_bundles(self) -> dict[str, BundleData]:
        """The stored averages of bundles, at most of ``BUNDLES_KEPT_MAX``."""
        found: dict[str, BundleData] = {}
        names: deque[str] = deque()
        # Other leaders may have kept more bundles than we do: only so many are read.
        for tenant in await self._children(BUNDLE_DATA_PATH):
            for namespace in await self._children(f"{BUNDLE_DATA_PATH}/{tenant}"):
                path = f"{BUNDLE_DATA_PATH}/{tenant}/{namespace}"
                names.extend(f"{tenant}/{namespace}/{each}" for each in await self._children(path))

        async def read(name: str) -> None:
            # One request for each, as ZooKeeper has no read of many nodes. They run side by side in
            # the pool.
            try:
                value, _ = await self.coordination.get(bundle_data_path(name))
                found[name] = BundleData.decode(value)
            except (NodeMissing, MalformedRecord):
                return  # deleted meanwhile, or written by another program: it counts as unknown

        # Which ones are left out, ZooKeeper's order decides: their weight is known only once they
        # are read.
        await self._pool.run(read, deque(names, BUNDLES_KEPT_MAX))
        return found

    async def write(
        self,
        bundles: Mapping[str, BundleData | None],
        brokers: Mapping[str, TimeAverageBrokerData],
        *,
        is_allowed: Callable[[], bool],
    ) -> None:
        """Write the averages of ``bundles``, or delete them where they are None, and those of all
        living ``brokers``; those of other brokers are deleted.

        ``is_allowed`` is called before each write: a broker that does not lead any more must not
        write over the next leader's averages.
        """
        records: deque[tuple[str, JsonRecord | None]] = deque(
            (bundle_data_path(bundle), data) for bundle, data in bundles.items()
        )
        records.extend((time_average_path(each), average) for each, average in brokers.items())
        # Brokers that are gone leave a record, which only the leader deletes.
        written = await self._children(TIME_AVERAGES_PATH)
        records.extend((time_average_path(each), None) for each in written if each not in brokers)

        async def put(item: tuple[str, JsonRecord | None]) -> None:
            path, record = item
            if not is_allowed():
                return
            try:
                if record is None:
                    await self.coordination.delete(path)
                else:
                    # Without a version: only the leader writes these, and the last value counts.
                    # ``set`` before ``create``, since nearly all records exist.
                    await self.coordination.set(path, record.encode())
            except NodeMissing:
                # The first record of a bundle or a broker, or one that was deleted by hand.
                if record is not None:
                    with suppress(NodeExists):  # the next leader's, which is newer
                        await self.coordination.create(path, record.encode(), make_parents=True)

        await self._pool.run(put, records)

    async def _children(self, path: str) -> list[str]:
        # Sorted, so that all runs of a simulation read in the same order.
        try:
            return sorted(await self.coordination.children(path))
        except NodeMissing:
            return []
