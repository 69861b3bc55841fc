"""Which bookies there are, where they listen and in which racks they stand.

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
from geminga_ledger.replication.placement import Candidate
from geminga_protocol.records.bookie_info import (
    AVAILABLE_PATH,
    READ_ONLY_NODE,
    READ_ONLY_PATH,
    BookieInfo,
)
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.racks import RACKS_PATH, BookieRacks
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
    """The bookies of the cluster, as ZooKeeper tells them."""

    def __init__(self, coordination: Coordination, *, random: Random, config: LedgerConfig) -> None:
        super().__init__()
        self._coordination = coordination
        self._backoff = Backoff(config.retry_first_s, config.retry_limit_s, random)
        self._writable: tuple[str, ...] = ()
        self._read_only: tuple[str, ...] = ()
        self._racks: Mapping[str, str] = {}
        self._is_stale = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def candidates(self) -> list[Candidate]:
        """The bookies that take new entries, sorted by id."""
        return [Candidate(bookie_id) for bookie_id in self._writable]

    @property
    def registered_count(self) -> int:
        """How many bookies are there, writable or read-only."""
        return len({*self._writable, *self._read_only})

    @property
    def racks(self) -> Mapping[str, str]:
        """Bookie id → rack, of those that somebody gave one."""
        return self._racks

    def is_registered(self, bookie_id: str) -> bool:
        """Whether the bookie is there, writable or read-only."""
        return bookie_id in self._writable or bookie_id in self._read_only

    async def changed(self) -> None:
        """Return at the next change of who is registered."""
        await self._changed.wait()

    async def resolve(self, bookie_id: str) -> tuple[str, int]:
        """Host and port of a bookie, writable or read-only, as it registered them last.

        Raises ``BookieUnavailable``, ``CoordinationError``.
        """
        try:
            info = BookieInfo.decode(await self._registration(bookie_id), bookie_id)
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

    async def _registration(self, bookie_id: str) -> bytes:
        """The bookie's record; empty where it has none: then an id that is an address counts."""
        for directory in (AVAILABLE_PATH, READ_ONLY_PATH):
            try:
                value, _ = await self._coordination.get(f"{directory}/{bookie_id}")
            except NodeMissing:
                continue
            return value
        return b""

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # the watching task is the service's own, nothing else is opened
        self._coordination.on_session(self._session_changed)
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
                self._is_stale.set()
                raise

    async def _refresh(self) -> None:
        self._is_stale.clear()
        available = await self._names_in(AVAILABLE_PATH)
        read_only = await self._names_in(READ_ONLY_PATH)
        await self._refresh_racks()
        writable = tuple(name for name in available if name != READ_ONLY_NODE)
        if (writable, read_only) != (self._writable, self._read_only):
            self._writable, self._read_only = writable, read_only
            log.info(
                "bookies changed", extra={"writable": list(writable), "read_only": list(read_only)}
            )
            self._changed.set()
            self._changed = asyncio.Event()

    async def _names_in(self, path: str) -> tuple[str, ...]:
        """The children of a node, sorted; of one that is not there, none."""
        try:
            names = await self._coordination.children(path, on_change=self._is_stale.set)
        except NodeMissing:
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
        racks = {
            bookie_id: each.rack
            for group in groups.values()
            for bookie_id, each in group.items()
            if each.rack
        }
        if racks != self._racks:
            self._racks = racks
            log.info("bookie racks changed", extra={"racks": racks})
