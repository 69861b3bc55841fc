"""All of a topic in order, as a compaction reads it: what is compacted, then the log.

It comes in parts, each small enough to be worked on in one turn of the event loop. A compaction
reads the stream twice, and both times must give the same entries: so its end is fixed beforehand,
and the log is not trimmed meanwhile, since the compaction's own cursor holds it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from geminga_broker.compaction.compacted_ledger import CompactedEntry, CompactedLedger
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader, LogScan

# How much is worked on before other tasks get a turn of the event loop: about a millisecond.
TURN_BYTES_MAX = 64 * 1024
TURN_ENTRIES_MAX = 64


@dataclass(frozen=True, slots=True)
class CompactionSource:
    """What one compaction reads: ``former`` up to its horizon, then ``log`` up to ``upto``."""

    log: LogReader
    # The compacted ledger in force; None for a topic that was never compacted.
    former: CompactedLedger | None
    upto: Position


class CompactionStream:
    """Reads ``source`` once, from its beginning to its end."""

    def __init__(self, source: CompactionSource) -> None:
        self._source = source
        # The parts of the last read that were not returned yet.
        self._turns: deque[list[CompactedEntry]] = deque()
        # Entries of the former compacted ledger read so far; None when all were, or there is none.
        self._former_index: int | None = None if source.former is None else 0
        # Nothing before the horizon is read from the log, though the log may still have it: what
        # the former ledger left out of it must not come back.
        before = source.log.chain.before_first
        after = before if source.former is None else source.former.horizon
        self._log = LogScan(source.log, after, source.upto)

    async def next_turn(self) -> list[CompactedEntry]:
        """The next few entries; none at the end. Raises ``StorageUnavailable``."""
        former, log = self._source.former, self._source.log
        # First the former ledger to its end, and only then the log: order is what "newest" goes by.
        if not self._turns and former is not None and self._former_index is not None:
            # In the same portions as the log is read.
            run = await former.read(self._former_index, log.entries_max, log.bytes_max)
            # An empty read is its end: a closed ledger gives at least one entry before that.
            self._former_index = self._former_index + len(run) if run else None
            self._turns.extend(turns_of(run))
        # The log is read behind the horizon: its entries come after all of the compacted ledger.
        if not self._turns and (found := await self._log.next_run()) is not None:
            ledger_id, entries = found
            run = [CompactedEntry(Position(ledger_id, each[0]), each[1]) for each in entries]
            self._turns.extend(turns_of(run))
        # An entry is in memory until its turn was worked on, so at most one read of entries at a
        # time.
        return self._turns.popleft() if self._turns else []


def turns_of(run: list[CompactedEntry]) -> list[list[CompactedEntry]]:
    """Parts of ``run``, each for one turn of the event loop."""
    parts: list[list[CompactedEntry]] = []
    part: list[CompactedEntry] = []
    part_bytes = 0
    for entry in run:
        part.append(entry)
        part_bytes += len(entry.payload)
        if part_bytes >= TURN_BYTES_MAX or len(part) >= TURN_ENTRIES_MAX:
            parts.append(part)
            part, part_bytes = [], 0
    if part:
        parts.append(part)
    return parts
