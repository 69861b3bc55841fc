"""The bookies that are registered in ZooKeeper: their ids, addresses and racks.

The lists of writable bookies (/ledgers/available) and of read-only ones (its child readonly) and
the racks (/bookies) are watched; an address is looked up when a connection is made, because that is
rare and a bookie may come back elsewhere. Facts: ``ZKRegistrationClient`` and
``DefaultBookieAddressResolver`` of Apache BookKeeper, ``BookieRackAffinityMapping`` of Apache
Pulsar.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.records.bookies.bookie_info import (
    AVAILABLE_PATH,
    READ_ONLY_NODE,
    READ_ONLY_PATH,
    BookieInfo,
)
from geminga_protocol.records.bookies.racks import RACKS_PATH, BookieRacks
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.backoff import Backoff
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    SessionState,
)
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

PORT_MAX = 65535


class BookieRegistry(Service):
    """Follows the bookies of the cluster. While ZooKeeper is away, it keeps what it knew."""

    def __init__(self, coordination: Coordination, *, random: Random, config: LedgerConfig) -> None:
        super().__init__()
        # The ids of the bookies that take new entries, and of those that can only be read; sorted.
        self.writable: tuple[str, ...] = ()
        self.read_only: tuple[str, ...] = ()
        # Bookie id → rack, of the bookies that an operator has assigned one.
        self.racks: Mapping[str, str] = {}
        self._coordination = coordination
        self._backoff = Backoff(config.retry_first_s, config.retry_limit_s, random)
        # Set by watches: what we know may not be the newest.
        self._is_stale = asyncio.Event()
        # Set, and replaced by a new one, at each change of the two lists.
        self._changed = asyncio.Event()

    def is_registered(self, bookie_id: str) -> bool:
        """Whether the bookie is there, writable or read-only."""
        return bookie_id in self.writable or bookie_id in self.read_only

    async def changed(self) -> None:
        """Return at the next change of the registered bookies."""
        await self._changed.wait()

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Host and port of a bookie, writable or read-only, as it registered them last.

        Raises ``BookieUnavailable``, ``CoordinationError``.
        """
        # Where it has no record at all, an id that is an address counts: ``decode`` of nothing.
        value = b""
        # A bookie that is both, while it changes over, has the same address in both.
        for directory in (AVAILABLE_PATH, READ_ONLY_PATH):
            try:
                value, _ = await self._coordination.get(f"{directory}/{bookie_id}")
            except NodeMissing:
                continue
            break
        try:
            info = BookieInfo.decode(value, bookie_id)
        except MalformedRecord as error:
            raise BookieUnavailable(
                bookie_id, f"not registered as it should be: {error}"
            ) from error
        if info.address is None:
            raise BookieUnavailable(bookie_id, "registered without an address for clients")
        host, port = info.address
        if not host or not 0 < port <= PORT_MAX:
            raise BookieUnavailable(bookie_id, f"registered at {host!r}, port {port}")
        return host, port

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the watching task is the service's own, nothing else is opened
        # Before the first reading: a session that begins anew meanwhile is not missed.
        self._coordination.on_session(self._session_changed)
        # The first reading must work: without bookies nothing else can be opened.
        await self._refresh()
        self.spawn_lasting(self._keep_fresh, name="watch bookies")

    def _session_changed(self, state: SessionState) -> None:
        # Watches may have been lost with the connection; a new session has none.
        if state is SessionState.CONNECTED:
            self._is_stale.set()

    async def _keep_fresh(self) -> None:
        while True:
            await self._is_stale.wait()
            try:
                await self._refresh()
                self._backoff.reset()
            except CoordinationError as error:
                # The list as it was is better than none: a session comes back.
                self._is_stale.set()
                log.info("bookie list not refreshed", extra={"error": str(error)})
                await asyncio.sleep(self._backoff.next_s())
            except Exception:
                # The service starts this loop again, which must find something to do.
                self._is_stale.set()
                raise

    async def _refresh(self) -> None:
        # Before reading: a change that comes meanwhile is read the next time.
        self._is_stale.clear()
        # Two requests, so a bookie that changes from one list to the other in between may be in
        # both or in neither. The watch of the first list has fired then, and the next reading puts
        # it right; until then ``MissingBookieWatch`` has its grace.
        available = await self._names_in(AVAILABLE_PATH)
        read_only = await self._names_in(READ_ONLY_PATH)
        await self._refresh_racks()
        writable = tuple(name for name in available if name != READ_ONLY_NODE)
        if (writable, read_only) != (self.writable, self.read_only):
            self.writable, self.read_only = writable, read_only
            log.info(
                "bookies changed", extra={"writable": list(writable), "read_only": list(read_only)}
            )
            # The event that waiters have is set once and then dropped: each call of ``changed``
            # waits for a change that comes after it.
            self._changed.set()
            self._changed = asyncio.Event()

    async def _names_in(self, path: str) -> tuple[str, ...]:
        """The children of a node, sorted and watched; none where there is no node."""
        try:
            names = await self._coordination.children(path, on_change=self._is_stale.set)
        except NodeMissing:
            # ``children`` leaves no watch on a missing node, ``exists`` does. The node may have
            # been made between the two: then read again.
            if await self._coordination.exists(path, on_change=self._is_stale.set):
                self._is_stale.set()
            names = []
        return tuple(sorted(names))

    async def _refresh_racks(self) -> None:
        try:
            value, _ = await self._coordination.get(RACKS_PATH, on_change=self._is_stale.set)
        except NodeMissing:
            if await self._coordination.exists(RACKS_PATH, on_change=self._is_stale.set):
                self._is_stale.set()
            value = b""
        try:
            groups = BookieRacks.decode(value).groups if value else {}
        except MalformedRecord as error:
            # Racks are a wish; where they cannot be read, those known before are the best guess.
            log.warning("bookie racks not readable", extra={"error": str(error)})
            return
        # Groups matter to isolation policies only, which ``placement`` does not have: a bookie's
        # rack counts in whatever group it is.
        racks = {
            bookie_id: each.rack
            for group in groups.values()
            for bookie_id, each in group.items()
            if each.rack
        }
        if racks != self.racks:
            self.racks = racks
            log.info("bookie racks changed", extra={"racks": racks})
