"""One compaction of one topic, in two phases, as upstream's ``AbstractTwoPhaseCompactor``.

Phase one reads everything (what was compacted before, then the log from there to where it ends
now) and learns which message of every key is the newest. Phase two reads the same again and writes
what survives into a new ledger. It writes nothing but that ledger: the caller puts it in force or
deletes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_broker.compaction.compacted_ledger import CompactedEntry
from geminga_broker.compaction.report import Progress
from geminga_broker.compaction.selection.entries import keep_only, messages_of
from geminga_broker.compaction.selection.survivors import NewestMessages, Survivors
from geminga_broker.compaction.stream import CompactionSource, CompactionStream
from geminga_broker.managed_ledger.writing.confirmation_waiter import ConfirmationWaiter
from geminga_broker.policies.compaction import CompactionConfig
from geminga_ledger import LedgerWriter
from geminga_protocol.records.topics.compacted_ledger import encode_compacted
from geminga_runtime.clock import Clock

# Rests shorter than this are added up: a timer of a millisecond rests too long.
REST_S_MIN = 0.01


@dataclass(slots=True, eq=False)
class CompactionRun:
    """Compacts ``source``: first ``find_newest``, then ``write`` with its outcome."""

    source: CompactionSource
    config: CompactionConfig
    # The partition that the topic is, which the ids of the written messages name.
    partition: int = field(kw_only=True)
    clock: Clock = field(kw_only=True)
    # Called with the number of entries that were written, and the milliseconds until they were
    # durable.
    on_written: Callable[[int, float], None] = field(kw_only=True)
    # May be read at any time.
    progress: Progress = field(default_factory=Progress, init=False)
    # Rests that the rate demands and that were not taken yet.
    _to_rest_s: float = field(default=0.0, init=False)

    async def find_newest(self) -> Survivors:
        """Phase one. Raises ``StorageUnavailable``."""
        # The config of the beginning holds for both phases: the second takes what the first
        # decided.
        newest = NewestMessages(retain_null_key=self.config.retain_null_key)
        stream = CompactionStream(self.source)
        while entries := await stream.next_turn():
            for entry in entries:
                newest.see(messages_of(entry.payload))
            await self._rest(entries)
        self.progress.removed = newest.removed
        return newest.survivors()

    async def write(
        self, survivors: Survivors, writer: LedgerWriter, written: ConfirmationWaiter
    ) -> None:
        """Phase two, closing the ledger included: when this returns, all is durable.

        Raises ``StorageUnavailable``, ``LedgerError``.
        """
        stream = CompactionStream(self.source)
        while entries := await stream.next_turn():
            kept: list[bytes] = []
            for (ledger_id, entry_id), payload in entries:
                messages = messages_of(payload)
                left: bytes | None = payload
                if messages is None:
                    survivors.take(1)  # an entry that cannot be parsed stays whole
                else:
                    # As many numbers as phase one gave this entry: both count ``messages_of``.
                    left = keep_only(payload, survivors.take(len(messages)))
                if left is not None:
                    kept.append(
                        encode_compacted(ledger_id, entry_id, left, partition=self.partition)
                    )
            if kept:
                began_s = self.clock.monotonic()
                writer.append_all(kept)
                # Counted when they are handed over; a run that fails reports none of it.
                self.progress.entries_written += len(kept)
                self.progress.bytes_written += sum(map(len, kept))
                # Wait before going on: so the entries of one turn are held in memory, not more.
                await written.wait_for(writer.last_pushed)
                self.on_written(len(kept), (self.clock.monotonic() - began_s) * 1000)
            await self._rest(entries)
        # Before the ledger is put in force: its end is fixed, and readers need no recovery.
        await writer.close()

    async def _rest(self, entries: list[CompactedEntry]) -> None:
        """Give other tasks a turn, and rest as long as the configured rate demands."""
        # The rate is that of reading, which is what disturbs others: it comes from bookies.
        size_bytes = sum(len(each.payload) for each in entries)
        self.progress.bytes_read += size_bytes
        # Debt, not a bucket: what was read is paid for afterwards, so a run never bursts.
        self._to_rest_s += size_bytes / self.config.read_bytes_per_s_max
        if self._to_rest_s < REST_S_MIN:
            await asyncio.sleep(0)
        else:
            rest_s, self._to_rest_s = self._to_rest_s, 0.0
            await asyncio.sleep(rest_s)
