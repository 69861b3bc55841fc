"""A topic as compacted readers see it: the compacted ledger up to the horizon, then the log.

The view lasts as long as the topic; compactions change what it shows. The ledger that was in force
before is deleted as soon as the new one is, so a read may meet a ledger that is gone: it is done
again with the new one, or from the log where there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from geminga_broker.compaction.compacted_ledger import CompactedEntry, CompactedLedger
from geminga_broker.compaction.errors import CompactedLedgerGone
from geminga_broker.compaction.selection.entries import last_index
from geminga_broker.managed_ledger.internal_stats import LedgerStats
from geminga_broker.managed_ledger.positions import EARLIEST, Position
from geminga_broker.managed_ledger.reading.payloads import entry_time_ms

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class CompactedView:
    """What is compacted of ``topic`` now. Methods raise ``StorageUnavailable``."""

    topic: str
    # The compacted ledger in force; None for a topic that was never compacted. The compactor
    # replaces it, and it is given up here where it is gone. Its horizon never goes back, except
    # when the topic is truncated.
    ledger: CompactedLedger | None = field(default=None, init=False)

    def covers(self, position: Position) -> bool:
        """Whether what is read at ``position`` comes from the compacted ledger."""
        return self.ledger is not None and position <= self.ledger.horizon

    async def read(
        self, position: Position, count_max: int, bytes_max: int
    ) -> tuple[list[CompactedEntry], Position | None]:
        """Entries from ``position`` on, and the horizon of the ledger that they came from.

        Where there are none, nothing is left from ``position`` to that horizon; where the horizon
        is None, all is to be read from the log.
        """

        async def entries(ledger: CompactedLedger) -> tuple[list[CompactedEntry], Position]:
            # The horizon of that ledger: another may be in force when the entries are there.
            return await ledger.read_from(position, count_max, bytes_max), ledger.horizon

        return await self._ask(entries) or ([], None)

    async def last_message(self) -> tuple[Position, int]:
        """The last message that is left, as entry and batch index (-1: no batch).

        ``(EARLIEST, -1)`` where nothing is left.
        """
        last = await self._ask(CompactedLedger.last)
        return (EARLIEST, -1) if last is None else (last.position, last_index(last.payload))

    async def first_published(self, time_ms: int) -> Position | None:
        """The first entry published at or after ``time_ms`` (Unix time); None without any."""
        return await self._ask(
            lambda ledger: ledger.first_where(lambda payload: entry_time_ms(payload) >= time_ms)
        )

    async def ledger_stats(self) -> LedgerStats | None:
        """The ledger in force: its id, entries and bytes; None where there is none."""
        reader = await self._ask(CompactedLedger.opened)
        if reader is None:
            return None
        return LedgerStats(
            reader.ledger_id, reader.last_confirmed + 1, reader.length_bytes, is_offloaded=False
        )

    async def _ask(self, question: Callable[[CompactedLedger], Awaitable[T]]) -> T | None:
        """The answer of the ledger in force; None where there is none, or it is gone.

        A ledger that was replaced meanwhile may have been deleted: then the new one is read.
        """
        # Ends: each turn either answers, or has another ledger than the one before, or none.
        while (ledger := self.ledger) is not None:
            try:
                return await question(ledger)
            except CompactedLedgerGone as error:
                # Not where a compaction has put another in force meanwhile: the loop reads that
                # one.
                if self.ledger is ledger:
                    log.error(  # noqa: TRY400 -- what it says is all there is to know
                        "compacted ledger is gone",
                        extra={"topic": self.topic, "error": str(error)},
                    )
                    # The log has what it has not trimmed; the next compaction writes another
                    # ledger.
                    self.ledger = None
        return None
