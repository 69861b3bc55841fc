"""Names for producers that bring none: unique in the cluster, made without asking anybody.

As upstream's DistributedIdGenerator: an ephemeral sequential node gives this broker a number that
no living broker has; names are ``<cluster>-<number>-<count>``.
"""

from __future__ import annotations

import asyncio

from geminga_runtime.coordination import Coordination

COUNTER_PATH = "/counters/producer-name"


class ProducerNames:
    """Hands out names; the number is fetched with the first."""

    def __init__(self, coordination: Coordination, cluster: str) -> None:
        self._coordination = coordination
        self._cluster = cluster
        self._instance: int | None = None
        self._count = -1
        self._asking = asyncio.Lock()

    async def next(self) -> str:
        """A name no producer of the cluster has."""
        if self._instance is None:
            async with self._asking:
                if self._instance is None:
                    path = await self._coordination.create(
                        f"{COUNTER_PATH}/-", ephemeral=True, sequential=True, make_parents=True
                    )
                    self._instance = int(path.rpartition("-")[2])
        self._count += 1
        return f"{self._cluster}-{self._instance}-{self._count}"
