"""New ledger ids: numbers that ZooKeeper counts, as BookKeeper's ``ZkLedgerIdGenerator`` has it do.

A sequential node is made below /ledgers/idgen, its number is the id, and it is deleted again. That
counter ends at 2**31 - 2. From then on, for the whole cluster and for good, numbers come from
directories /ledgers/idgen-long/HOB-<high half>, each with a counter for the low half
(``LongZkLedgerIdGenerator``).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from geminga_ledger.errors import LedgerIdsExhausted
from geminga_protocol.records.ledgers.ledger_metadata import (
    ID_GENERATOR_PATH,
    LONG_ID_GENERATOR_PATH,
)
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
)

log = logging.getLogger(__name__)

# ZooKeeper's counter is a signed 32-bit number: at its end it goes on below zero.
COUNTER_END = (1 << 31) - 1
# Old directories are left for writers that have not seen the newest yet.
HIGH_DIRECTORIES_KEPT = 3

_ID_PREFIX = "ID-"
_HIGH_DIRECTORY = LONG_ID_GENERATOR_PATH + "/HOB-{:010d}"
_HIGH_NAME = re.compile(r"HOB-(\d{10})", re.ASCII)


@dataclass(frozen=True, slots=True)
class LedgerIds:
    """Gives ids that no other writer of the cluster is given."""

    coordination: Coordination

    async def next_id(self) -> int:
        """A new id. Raises ``LedgerIdsExhausted``, ``CoordinationError``."""
        # The directory of long ids exists once the short counter was used up: then that need not be
        # counted on.
        if await self.coordination.exists(LONG_ID_GENERATOR_PATH) is None:
            number = await self._count(ID_GENERATOR_PATH)
            if number is not None:
                return number
        return await self._next_long_id()

    async def _next_long_id(self) -> int:
        """A number above 2**32: a directory's name is the high half, its counter the low one."""
        try:
            names = await self.coordination.children(LONG_ID_GENERATOR_PATH)
        except NodeMissing:
            names = []
        highs = sorted(int(match[1]) for match in map(_HIGH_NAME.fullmatch, names) if match)
        # Not 0: a high half of 0 would give the numbers of the short counter a second time.
        high = highs[-1] if highs else 1
        while high < COUNTER_END:
            low = await self._count(_HIGH_DIRECTORY.format(high))
            if low is not None:
                for old in highs[:-HIGH_DIRECTORIES_KEPT]:
                    try:
                        await self.coordination.delete(_HIGH_DIRECTORY.format(old))
                    except CoordinationError:
                        continue  # another writer deleted it, or uses it; the next id tries again
                return high << 32 | low
            high += 1
        raise LedgerIdsExhausted

    async def _count(self, directory: str) -> int | None:
        """The next number of a directory's counter; None when it is used up."""
        prefix = f"{directory}/{_ID_PREFIX}"
        # ZooKeeper counts in the directory itself, up with each node that is made there; deleting
        # the node does not take the number back. Ephemeral, so that one whose deletion fails goes
        # too.
        path = await self.coordination.create(
            prefix, ephemeral=True, sequential=True, make_parents=True
        )
        number = int(path.removeprefix(prefix))
        try:
            await self.coordination.delete(path)
        except CoordinationError as error:
            # It goes with the session; the number is ours either way.
            log.info("id node left", extra={"path": path, "error": str(error)})
        return number if 0 <= number < COUNTER_END else None
