"""Ledger metadata in ZooKeeper: created once, changed by compare-and-set, deleted.

The node's version is what is compared. A lost connection leaves open whether a change was made: it
is tried again, and where the version has moved on, decided anew from what is stored then. Facts:
``AbstractZkLedgerManager`` and ``MetadataUpdateLoop`` of Apache BookKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TypeVar

from geminga_ledger.config import LedgerConfig
from geminga_ledger.errors import NoSuchLedger, UnsupportedLedger
from geminga_ledger.metadata.ids import LedgerIds
from geminga_ledger.retry import RetryPolicy
from geminga_protocol.errors import WireError
from geminga_protocol.records.ledgers.ledger_metadata import (
    LEDGERS_PATH,
    LedgerMetadata,
    ledger_path,
)
from geminga_runtime.clock import Clock
from geminga_runtime.coordination import (
    ConnectionLost,
    Coordination,
    CoordinationError,
    NodeExists,
    NodeMissing,
    OnChange,
    VersionMismatch,
)

log = logging.getLogger(__name__)

# What an answer that is lost with its connection leaves open, and how the next attempt settles it:
#
#     create   It finds the node there, and knows by the creation token that it is ours.
#     update   It fails by the version, reads what is stored, and lets ``change`` decide: None where
#              the change has been made already.
#     delete   It finds no node, which is no error.

# A ledger's metadata carry a random number, by which a writer recognizes the node that it made
# itself when the answer to its creation was lost. 63 bits: not negative as a signed 64-bit number.
_CREATION_TOKEN_BITS = 63
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """A ledger's metadata as it was in ZooKeeper under ``version``."""

    ledger_id: int
    metadata: LedgerMetadata
    # The node's version: what an update compares with.
    version: int
    # When the node was created, for listings; 0 where it is not known.
    created_ms: int = 0


Change = Callable[[LedgerMetadata], LedgerMetadata | None]
"""What a ledger's metadata should become; None when it is right as it is. May raise to give up."""


class LedgerStore:
    """Creates, reads, changes and deletes ledgers' metadata.

    All methods raise ``CoordinationError`` when ZooKeeper stays away beyond the deadline.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        clock: Clock,
        random: Random,
        config: LedgerConfig,
    ) -> None:
        self._coordination = coordination
        self._retry = RetryPolicy(clock=clock, random=random, config=config)
        self._ids = LedgerIds(coordination)
        self._random = random
        self._config = config
        # By ledger: set at the next change of its metadata. Of ledgers with a watch in ZooKeeper.
        self._watched: dict[int, asyncio.Event] = {}

    async def create(self, metadata: LedgerMetadata) -> StoredMetadata:
        """Store the metadata of a new ledger under a new id. Raises ``LedgerIdsExhausted``."""
        token = self._random.getrandbits(_CREATION_TOKEN_BITS)
        marked = replace(metadata, creation_token=token)
        while True:
            # An id whose answer was lost is never used: ids grow with gaps.
            ledger_id = await self._persist(self._ids.next_id)
            if await self._persist(partial(self._create_as, ledger_id, marked)):
                return StoredMetadata(ledger_id, marked, 0)
            # Another kind of client made a ledger under a number that it chose itself. The next
            # turn takes the next id.
            log.warning("ledger id was taken", extra={"ledger": ledger_id})

    async def _create_as(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        """Whether the node is ours: made now, or by an attempt whose answer was lost."""
        path = ledger_path(ledger_id)
        try:
            await self._coordination.create(path, metadata.encode(), make_parents=True)
        # The token says whose node it is. No other client is given this id, but some choose ids
        # themselves.
        except NodeExists:
            try:
                stored = await self._read_once(ledger_id)
            except NoSuchLedger:
                return False
            return stored.metadata.creation_token == metadata.creation_token
        return True

    async def read(self, ledger_id: int) -> StoredMetadata:
        """Raises ``NoSuchLedger``; ``UnsupportedLedger`` when the record cannot be read."""
        return await self._persist(lambda: self._read_once(ledger_id))

    async def read_watched(self, ledger_id: int) -> tuple[StoredMetadata, asyncio.Event]:
        """Like ``read``, with an event that is set when this may not be the newest any more.

        All readers of a ledger share one watch in ZooKeeper.
        """
        changed = self._watched.get(ledger_id)
        if changed is not None:
            return await self.read(ledger_id), changed
        changed = asyncio.Event()
        on_change = partial(self._changed, ledger_id, changed)
        stored = await self._persist(lambda: self._read_once(ledger_id, on_change))
        # The watch may have fired before its own answer came; another reader may have set one
        # meanwhile, which then stays.
        if not changed.is_set():
            self._watched.setdefault(ledger_id, changed)
        return stored, changed

    def _changed(self, ledger_id: int, changed: asyncio.Event) -> None:
        changed.set()
        if self._watched.get(ledger_id) is changed:
            del self._watched[ledger_id]

    async def update(self, stored: StoredMetadata, change: Change) -> StoredMetadata:
        """Apply ``change`` to the newest metadata, beginning with ``stored``, until it is written.

        ``change`` is called again whenever another process wrote in between. Returns what is
        stored then. Raises what ``change`` raises, and ``NoSuchLedger``.
        """
        # Outlives a lost answer: the next attempt compares with the same version again, and reads
        # what is stored only where that has moved on.
        current = stored

        async def attempt() -> StoredMetadata:
            nonlocal current
            # Ends: each turn means that another process has changed the ledger, which happens a few
            # times in its life.
            while True:
                wanted = change(current.metadata)
                if wanted is None:
                    return current
                path = ledger_path(current.ledger_id)
                try:
                    stat = await self._coordination.set(
                        path, wanted.encode(), version=current.version
                    )
                except VersionMismatch:
                    current = await self._read_once(current.ledger_id)
                except NodeMissing as error:
                    raise NoSuchLedger(current.ledger_id) from error
                else:
                    return StoredMetadata(current.ledger_id, wanted, stat.version, stat.created_ms)

        return await self._persist(attempt)

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger's metadata; bookies then drop its entries by themselves.

        No error where it is gone already.
        """

        async def attempt() -> None:
            path = ledger_path(ledger_id)
            try:
                await self._coordination.delete(path)
            # An earlier attempt may have deleted it. The inner nodes are left then, as in the case
            # below.
            except NodeMissing:
                return
            # The inner nodes that have become empty go as well.
            while (path := path.rpartition("/")[0]) != LEDGERS_PATH:
                try:
                    await self._coordination.delete(path)
                except CoordinationError:
                    return  # not empty, gone already, or left for the next deletion

        await self._persist(attempt)

    async def _read_once(self, ledger_id: int, on_change: OnChange | None = None) -> StoredMetadata:
        path = ledger_path(ledger_id)
        try:
            value, stat = await self._coordination.get(path, on_change=on_change)
        except NodeMissing as error:
            raise NoSuchLedger(ledger_id) from error
        try:
            metadata = LedgerMetadata.decode(value)
        except WireError as error:
            raise UnsupportedLedger(
                ledger_id, f"has metadata that cannot be read: {error}"
            ) from error
        return StoredMetadata(ledger_id, metadata, stat.version, stat.created_ms)

    async def _persist(self, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat an attempt while the connection to ZooKeeper is lost, up to the deadline."""
        return await self._retry.run(
            attempt, on=ConnectionLost, deadline_s=self._config.metadata_deadline_s
        )
