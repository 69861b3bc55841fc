"""Where things are: blocks of entries by ledger and entry, ledger records, how far checkpoints got.

The index has no log of its own. What a ``SortedStore`` loses in a crash is still in the journal
(what a checkpoint carried) or in the old entry log (what a compaction copied): the journal's files
and the old log are removed only after ``commit`` has flushed the index. So after a crash the index
may be older than the entry logs, never newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Protocol

from geminga_bookie.formats import index_v2 as layout
from geminga_bookie.formats.entry_log_v1 import (
    BLOCK_SPAN_MAX,
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from geminga_bookie.formats.index_v2 import (
    U32_MAX,
    U64_MAX,
    BlockLocation,
    Counts,
    LogEnd,
    LogUsage,
    Pair,
)
from geminga_bookie.formats.journal_v1 import JournalMark

# Ledger ids are signed on the wire.
_LEDGER_ID_MAX = (1 << 63) - 1
# ``clear`` removes so many keys with one write: a batch of the whole index would not fit in memory.
KEYS_PER_CLEAR = 10_000


class SortedStore(Protocol):
    """Pairs sorted by key. A crash may lose what was written since the last ``flush``.

    Methods raise ``OSError`` where the disk fails.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, None where there is none."""
        ...

    def descend(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Yield the pairs with ``low <= key <= high``, the highest key first.

        Writes that come while it is read do not show in it.
        """
        ...

    def write(self, pairs: Sequence[Pair], removed: Sequence[bytes] = ()) -> None:
        """Put all pairs, then remove the keys ``removed``.

        After a crash all of a write is there or none of it, and where it is not there, no later
        write is there either.
        """
        ...

    async def flush(self) -> None:
        """Return when everything written so far is on stable storage."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the index that is made as a whole; None leaves a value as it was."""

    # Blocks that reads may be sent to from now on.
    blocks: Sequence[BlockLocation] = ()
    ledgers: Sequence[LedgerRecord] = ()
    # Blocks are removed by their place: one that was copied is removed there and added here. A
    # change must not add and remove the same block: it would be removed.
    removed_blocks: Sequence[BlockLocation] = ()
    removed_ledgers: Sequence[int] = ()
    removed_logs: Sequence[int] = ()
    # The end stays where it was unless another one is given.
    log_end: LogEnd | None = None
    # One mark for each journal, in the journals' order.
    journal_marks: Sequence[JournalMark] | None = None
    counts: Counts | None = None


@dataclass(slots=True, eq=False)
class Index:
    """Blocks, ledgers, entry logs and journal marks in a sorted store."""

    # Read and written on the event loop's thread only. What changes it holds ``Checkpointer.lock``,
    # once the bookie is open.
    store: SortedStore
    # The usage of every log, read at the first use and kept up to date since. Replaced as a whole
    # by each change, so that a caller may go through the mapping and wait meanwhile.
    _logs: dict[int, LogUsage] | None = field(init=False, default=None)

    @property
    def format_version(self) -> int | None:
        """The version the index was written with; None where it is new, or was lost."""
        value = self.store.get(layout.FORMAT_KEY)
        return None if value is None else int(layout.FORMAT.unpack(value)[0])

    def journal_marks(self) -> tuple[JournalMark, ...]:
        """From where each journal must be replayed; empty where no checkpoint has finished yet."""
        value = self.store.get(layout.JOURNAL_MARK_KEY) or b""
        return tuple(JournalMark(*fields) for fields in layout.JOURNAL_MARK.iter_unpack(value))

    def log_end(self) -> LogEnd | None:
        """The place behind the last block; None where no checkpoint has finished yet."""
        value = self.store.get(layout.LOG_END_KEY)
        return None if value is None else LogEnd(*layout.LOG_END.unpack(value))

    def counts(self) -> Counts:
        """How much the entry logs hold."""
        value = self.store.get(layout.COUNTS_KEY)
        return Counts() if value is None else Counts(*layout.COUNTS.unpack(value))

    @property
    def logs(self) -> Mapping[int, LogUsage]:
        """How much of each entry log is in use, by number, rising."""
        if self._logs is None:
            found = [
                (layout.log_number(key), LogUsage(*layout.LOG_USAGE.unpack(value)))
                for key, value in self.store.descend(layout.log_key(U32_MAX), layout.log_key(0))
            ]
            self._logs = dict(reversed(found))
        return self._logs

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """The record of a ledger; None where this bookie has nothing of it."""
        value = self.store.get(layout.ledger_key(ledger_id))
        return None if value is None else decode_ledger_record(value)

    def ledgers(self, highest: int = _LEDGER_ID_MAX) -> Iterator[LedgerRecord]:
        """Yield every ledger on this bookie with an id up to ``highest``, the highest first."""
        # All reading goes downwards, so that a store needs one kind of iteration only.
        for _, value in self.store.descend(layout.ledger_key(highest), layout.ledger_key(0)):
            yield decode_ledger_record(value)

    def blocks(self, ledger_id: int, entry_id: int) -> Iterator[BlockLocation]:
        """Yield the blocks that may hold the entry, the likeliest first."""
        # A lookup is a short descent from the entry's own place in the order of keys, downwards. A
        # block spans at most BLOCK_SPAN_MAX ids, so one that begins further back ends before the
        # entry. Most blocks are dense and do not overlap: the first one found is mostly the one.
        first_entries = max(0, entry_id - BLOCK_SPAN_MAX + 1), entry_id
        low, high = layout.block_keys((ledger_id, ledger_id), first_entries)
        for key, value in self.store.descend(high, low):
            at = layout.decode_block(key, value)
            # A block with holes may still lack the entry: the caller reads on until one has it.
            if at.last_entry >= entry_id:
                yield at

    def blocks_of(self, ledger_id: int) -> Iterator[BlockLocation]:
        """Yield every block of a ledger, the last first."""
        low, high = layout.block_keys((ledger_id, ledger_id))
        for key, value in self.store.descend(high, low):
            yield layout.decode_block(key, value)

    def blocks_in(self, log_number: int) -> Iterator[BlockLocation | None]:
        """Yield every block in an entry log, and None for every block in another log.

        Reads the whole index, for a damaged log that no longer shows what is in it; the
        Nones are there so that the caller can let other tasks run now and then.
        """
        low, high = layout.block_keys((0, U64_MAX))
        for key, value in self.store.descend(high, low):
            at = layout.decode_block(key, value)
            yield at if at.log_number == log_number else None

    def knows(self, at: BlockLocation) -> bool:
        """Whether the index sends reads to this block, at this place."""
        return self.store.get(layout.block_key(at)) is not None

    async def commit(self, change: Change) -> None:
        """Make a change, durable on return; after a crash all of it is there, or none.

        Also writes the version, by which the next start knows that there is an index and does not
        rebuild one.
        """
        # The version goes into the same write as the change: a rebuild that was cut short has none.
        version = layout.FORMAT.pack(layout.FORMAT_VERSION)
        self.note(change, (layout.FORMAT_KEY, version))
        await self.store.flush()

    def clear(self) -> None:
        """Remove everything that a rebuild left which did not succeed."""
        low, high = b"\x00", b"\xff"
        # Each portion is looked for anew: a descent does not see what was removed since it began.
        while keys := [key for key, _ in islice(self.store.descend(high, low), KEYS_PER_CLEAR)]:
            self.store.write([], keys)
        self._logs = None

    def note(self, change: Change, *others: Pair) -> None:
        """Make a change without making it durable: the next ``flush`` or ``commit`` does that.

        What was flushed and not committed counts as an index only after a later ``commit``.
        """
        # Everything goes into one write, so that a crash leaves all of it or none: a block without
        # its log's usage, or marks without the blocks that they speak for, would lose entries.
        logs = self._usage_after(change)
        pairs = [*others, *(layout.block_pair(at) for at in change.blocks)]
        pairs += [
            (layout.ledger_key(record.ledger_id), encode_ledger_record(record))
            for record in change.ledgers
        ]
        pairs += [
            (layout.log_key(number), layout.LOG_USAGE.pack(usage.live_bytes, usage.end))
            for number, usage in logs.items()
        ]
        if change.counts is not None:
            pairs.append(
                (
                    layout.COUNTS_KEY,
                    layout.COUNTS.pack(change.counts.ledgers, change.counts.entries),
                )
            )
        if change.log_end is not None:
            pairs.append(
                (
                    layout.LOG_END_KEY,
                    layout.LOG_END.pack(change.log_end.log_number, change.log_end.offset),
                )
            )
        if change.journal_marks is not None:
            marks = [
                layout.JOURNAL_MARK.pack(mark.file_number, mark.offset, mark.next_group)
                for mark in change.journal_marks
            ]
            pairs.append((layout.JOURNAL_MARK_KEY, b"".join(marks)))
        # The store removes keys after it has put all pairs: a removed log does not come back by the
        # usage that is put for the blocks that left it.
        removed = [layout.block_key(at) for at in change.removed_blocks]
        removed += [layout.ledger_key(ledger_id) for ledger_id in change.removed_ledgers]
        removed += [layout.log_key(number) for number in change.removed_logs]
        # ``logs`` is read before the write: at its first use it would otherwise find the new values
        # in the store, and count them twice.
        kept = {**self.logs, **logs}
        self.store.write(pairs, removed)
        # Only after the write: where it fails, nothing was changed.
        for number in change.removed_logs:
            kept.pop(number, None)
        self._logs = kept

    def _usage_after(self, change: Change) -> dict[int, LogUsage]:
        """The usage, after the change, of every log that it touches."""
        # The usage is kept, and not counted from the blocks when it is asked for: that would read
        # the whole index.
        touched: dict[int, LogUsage] = {}
        signed = chain(
            ((1, at) for at in change.blocks), ((-1, at) for at in change.removed_blocks)
        )
        for sign, at in signed:
            # One change may touch a log many times: what it did before counts.
            usage = touched.get(at.log_number) or self.logs.get(at.log_number, LogUsage())
            live_bytes = usage.live_bytes + sign * at.size
            # Each block that is removed was added before: callers ask the index for it, and let
            # nothing else change the index in between.
            assert live_bytes >= 0, f"entry log {at.log_number} has less than nothing of use"
            touched[at.log_number] = LogUsage(live_bytes, max(usage.end, at.end))
        if change.log_end is not None:
            # Ledger records make a log longer without a block of entries. They count as known bytes
            # too.
            number, end = change.log_end.log_number, change.log_end.offset
            usage = touched.get(number) or self.logs.get(number, LogUsage())
            touched[number] = LogUsage(usage.live_bytes, max(usage.end, end))
        return touched
