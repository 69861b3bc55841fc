"""Tells writers of bookies that are gone, also those who have nothing to send.

A writer finds out by itself when it sends. One that is idle would keep a lost bookie in its
ensemble, and auto-recovery, which sees a ledger that nobody repairs, would take it from its living
writer. So this goes by the fact that auto-recovery goes by as well: who is registered. (A
connection proves nothing here: that to a machine without power stays as long as nothing is sent.)

While every bookie that is written to is registered, one task for all waits for the next change.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.links import BookieLinks
from geminga_ledger.membership.registry import BookieRegistry
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service

# While a bookie is absent: how often it is looked whether it still is, as a part of the grace.
_LOOKS_PER_GRACE = 4
# So many writers are told at a time, then the event loop and ZooKeeper have this pause, because
# each of them writes its ledger's metadata: a thousand a second. Who sends something waits for none
# of it.
WRITERS_AT_ONCE = 50
PAUSE_S = 0.05


class MissingBookieWatch(Service):
    """Watches over the bookies that writers are attached to."""

    def __init__(
        self, registry: BookieRegistry, links: BookieLinks, *, clock: Clock, config: LedgerConfig
    ) -> None:
        super().__init__()
        self._registry = registry
        self._links = links
        self._clock = clock
        self._grace_s = config.absent_replace_s
        # Since when each bookie is not registered that somebody writes to.
        self._since_s: dict[str, float] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the watching task is the service's own, nothing else is opened
        self.spawn_lasting(self._watch, name="watch for absent bookies")

    async def _watch(self) -> None:
        while True:
            for bookie_id in self._long_absent():
                await self._tell_writers(bookie_id)
            try:
                async with asyncio.timeout(self._look_s()):
                    await self._registry.changed()
            except TimeoutError:
                continue

    def _look_s(self) -> float | None:
        return self._grace_s / _LOOKS_PER_GRACE if self._since_s else None

    def _long_absent(self) -> list[str]:
        now_s = self._clock.monotonic()
        absent = dict.fromkeys(
            link.bookie_id
            for link in self._links.writing
            if not self._registry.is_registered(link.bookie_id)
        )
        self._since_s = {each: self._since_s.get(each, now_s) for each in absent}
        return [each for each, since_s in self._since_s.items() if now_s - since_s >= self._grace_s]

    async def _tell_writers(self, bookie_id: str) -> None:
        for link in self._links.writing:
            if link.bookie_id != bookie_id:
                continue
            for told, ledger_id in enumerate(link.writing, 1):
                link.tell_absent(ledger_id)
                if told % WRITERS_AT_ONCE == 0:
                    await asyncio.sleep(PAUSE_S)
                    if self._registry.is_registered(bookie_id):
                        return
