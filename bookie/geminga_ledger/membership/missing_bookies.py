"""Tells writers of bookies that are not registered any more, idle writers too.

A writer notices a lost bookie by itself when it sends. An idle one would keep the bookie in its
ensemble, and auto-recovery, which finds a ledger with a lost bookie that is not repaired, would
take it from its living writer. So this watches the same fact as auto-recovery: which bookies are
registered. (A connection proves nothing here: one to a machine without power stays open as long as
nothing is sent.)

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

# While a bookie is missing it is checked so many times in the grace whether it still is: writers
# are told at most a quarter of the grace late.
_CHECKS_PER_GRACE = 4
# So many writers are told at a time; then the event loop and ZooKeeper have this pause, because
# each of them writes its ledger's metadata: a thousand a second. A writer that sends something
# notices by itself and waits for none of this.
WRITERS_AT_ONCE = 50
PAUSE_S = 0.05


class MissingBookieWatch(Service):
    """Watches the bookies that writers are attached to."""

    def __init__(
        self, registry: BookieRegistry, links: BookieLinks, *, clock: Clock, config: LedgerConfig
    ) -> None:
        super().__init__()
        self._registry = registry
        self._links = links
        self._clock = clock
        # So long may a bookie be missing, as it is during a restart, before it is replaced.
        self._grace_s = config.absent_replace_s
        # Since when each bookie is missing, of those that writers are attached to.
        self._since_s: dict[str, float] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the watching task is the service's own, nothing else is opened
        self.spawn_lasting(self._watch, name="watch for absent bookies")

    async def _watch(self) -> None:
        while True:
            now_s = self._clock.monotonic()
            # Looked at anew after each wait: links get writers, and writers change bookies.
            missing = dict.fromkeys(
                link.bookie_id
                for link in self._links.writing
                if not self._registry.is_registered(link.bookie_id)
            )
            # A bookie that came back meanwhile is dropped; missing again, its grace begins anew.
            self._since_s = {each: self._since_s.get(each, now_s) for each in missing}
            for bookie_id, since_s in list(self._since_s.items()):
                if now_s - since_s >= self._grace_s:
                    await self._tell_writers(bookie_id)
            # Writers that found no replacement are told again at each check.
            check_s = self._grace_s / _CHECKS_PER_GRACE if self._since_s else None
            try:
                async with asyncio.timeout(check_s):
                    await self._registry.changed()
            except TimeoutError:
                continue

    async def _tell_writers(self, bookie_id: str) -> None:
        for link in self._links.writing:
            if link.bookie_id != bookie_id:
                continue
            # A copy: writers that replace the bookie detach from the link meanwhile.
            for told, ledger_id in enumerate(link.writing, 1):
                link.tell_absent(ledger_id)
                if told % WRITERS_AT_ONCE == 0:
                    await asyncio.sleep(PAUSE_S)
                    if self._registry.is_registered(bookie_id):
                        return
