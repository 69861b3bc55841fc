"""The living brokers of a cluster: their ids, and where each is reached.

A living broker has an ephemeral node ``/loadbalance/brokers/<host:web port>`` with its addresses
and its load. The brokers write these nodes themselves; they are read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga_cluster.watched import Watched, watched_children
from geminga_protocol.records.cluster.brokers import BROKERS_PATH, LocalBrokerData, broker_path
from geminga_runtime.coordination import Coordination, OnChange


class LivingBrokers:
    """The registered brokers. Their records are kept in memory under watches."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        # Which brokers live, from the children of ``BROKERS_PATH``; their records, by node. The two
        # caches are not one: a broker may be gone from the one and still stand in the other until
        # its second watch fires.
        self._names = watched_children(coordination)
        self._records = Watched(coordination, self._read)

    def follow(self, on_stale: Callable[[], None]) -> None:
        """Call ``on_stale`` when what was read here has changed, or may have: brokers that came or
        went, or their records."""
        # Either may be the first to know that a broker is gone.
        for watched in (self._names, self._records):
            watched.follow(lambda _: on_stale())

    async def ids(self) -> list[str]:
        """The ids (``host:web port``) of the living brokers, sorted."""
        # None before the first broker of the cluster ever was registered: the node is missing then.
        return sorted(await self._names.get(BROKERS_PATH) or ())

    async def get(self, broker_id: str) -> LocalBrokerData | None:
        """A broker's addresses and its last reported load; None where it is gone."""
        return await self._records.get(broker_path(broker_id))

    async def _read(self, path: str, on_change: OnChange) -> LocalBrokerData:
        """The record, decoded in parts between which other tasks run: 1,000 bundles take 6 ms."""
        value, _ = await self._coordination.get(path, on_change=on_change)
        parts = LocalBrokerData.decode_in_parts(value)
        while True:
            try:
                next(parts)
            except StopIteration as decoded:
                # A generator's return value arrives in the exception.
                record: LocalBrokerData = decoded.value
                return record
            # The watch was set by the read above: a change during these turns drops the answer.
            await asyncio.sleep(0)
