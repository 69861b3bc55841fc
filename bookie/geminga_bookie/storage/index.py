"""Where things are: blocks of entries by ledger and entry, ledger records, how far checkpoints got.

One record for each block, not for each entry, and one for each entry log: how much of it is still
of use. The keys are laid out here; what keeps them sorted on a disk is a ``SortedStore``, which has
no log of its own: what it loses in a crash is still in the journal or in the entry log it was moved
from, because neither is removed before ``commit`` has flushed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from struct import Struct
from typing import Protocol

from geminga_bookie.formats.entry_log_v1 import (
    BLOCK_SPAN_MAX,
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from geminga_bookie.journal.mark import JournalMark

Pair = tuple[bytes, bytes]


class SortedStore(Protocol):
    """Pairs sorted by key. What was written but not flushed may be lost in a crash.

    Methods raise ``OSError`` where the disk fails.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``."""
        ...

    def descend(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Pairs with ``low <= key <= high``, highest key first."""
        ...

    def write(self, pairs: Sequence[Pair], removed: Sequence[bytes] = ()) -> None:
        """Put all pairs and remove the keys ``removed``; a crash leaves all of it done, or none.

        A crash that undoes a write undoes all later ones too.
        """
        ...

    async def flush(self) -> None:
        """Return when everything written so far is on stable storage."""
        ...


# Keys begin with a letter for what they are:
# block:   +-----+-----------+-------------+---------------+--------+
#          | "b" | ledger_id | first entry | entry log no. | offset |   value: last entry i64, size
#          |     |  u64      |  u64        |  u32          |  u64   |          u32, entries u32
#          +-----+-----------+-------------+---------------+--------+
#          An entry that was added twice (sent again, or by recovery) stands in two blocks. Either
#          copy is right: they differ at most in the last-add-confirmed their writers knew.
# ledger:  +-----+-----------+
#          | "l" | ledger_id |                                           value: a ledger record
#          |     |  u64      |
#          +-----+-----------+
# log:     +-----+---------------+
#          | "e" | entry log no. |                value: bytes of the blocks known in it u64,
#          |     |  u32          |                       end of the last block ever known u64
#          +-----+---------------+
# meta:    "m" and a word                           value: as below; of marks one for each journal
_BLOCK_KEY = Struct(">cQQIQ")
_BLOCK_VALUE = Struct(">qII")
_LEDGER_KEY = Struct(">cQ")
_LOG_KEY = Struct(">cI")
_LOG_USAGE = Struct(">QQ")
_JOURNAL_MARK = Struct(">QQQ")
_LOG_END = Struct(">IQ")
_COUNTS = Struct(">QQ")
_FORMAT = Struct(">H")
_JOURNAL_MARK_KEY = b"mjournal_mark"
_LOG_END_KEY = b"mentry_log_end"
_COUNTS_KEY = b"mcounts"
_FORMAT_KEY = b"mformat"
# 1: without what stands of each entry log, and without the number of entries of a block.
FORMAT_VERSION = 2
# Removed at a time.
KEYS_PER_CLEAR = 10_000
_U32_MAX = 0xFFFF_FFFF
_U64_MAX = 0xFFFF_FFFF_FFFF_FFFF
_LEDGER_ID_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A block in an entry log: its bytes, header included, the entry ids it spans, their count."""

    ledger_id: int
    first_entry: int
    last_entry: int
    log_number: int
    offset: int
    size: int
    entries: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Up to where entry logs are known to the index: bytes behind ``offset`` belong to nobody."""

    log_number: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogUsage:
    """What an entry log is good for: bytes of the blocks that the index knows in it.

    ``end`` is the offset behind the last block that was ever known: the file is at least as long.
    """

    live_bytes: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """How much the entry logs hold: ledgers, and entries (one added twice counts twice)."""

    ledgers: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the index is told at once; None leaves a value as it was.

    ``removed_blocks`` are compared by place: a block that moved is removed there and added here.
    ``journal_marks`` has one for each journal.
    """

    blocks: Sequence[BlockLocation] = ()
    ledgers: Sequence[LedgerRecord] = ()
    removed_blocks: Sequence[BlockLocation] = ()
    removed_ledgers: Sequence[int] = ()
    removed_logs: Sequence[int] = ()
    log_end: LogEnd | None = None
    journal_marks: Sequence[JournalMark] | None = None
    counts: Counts | None = None


class Index:
    """Blocks, ledgers, logs and marks in a sorted store."""

    def __init__(self, store: SortedStore) -> None:
        self._store = store
        self._logs: dict[int, LogUsage] | None = None

    @property
    def format_version(self) -> int | None:
        """The version the index was written with; None where it is new (or was lost)."""
        value = self._store.get(_FORMAT_KEY)
        return None if value is None else int(_FORMAT.unpack(value)[0])

    def journal_marks(self) -> tuple[JournalMark, ...]:
        """From where each journal must be replayed; empty where none is known."""
        value = self._store.get(_JOURNAL_MARK_KEY) or b""
        return tuple(JournalMark(*fields) for fields in _JOURNAL_MARK.iter_unpack(value))

    def log_end(self) -> LogEnd | None:
        """Where the last checkpoint's entry log ended; None where there was none."""
        value = self._store.get(_LOG_END_KEY)
        return None if value is None else LogEnd(*_LOG_END.unpack(value))

    def counts(self) -> Counts:
        """How much the last commit left in the entry logs."""
        value = self._store.get(_COUNTS_KEY)
        return Counts() if value is None else Counts(*_COUNTS.unpack(value))

    @property
    def logs(self) -> Mapping[int, LogUsage]:
        """What each entry log is good for, by number, rising."""
        if self._logs is None:
            low, high = _LOG_KEY.pack(b"e", 0), _LOG_KEY.pack(b"e", _U32_MAX)
            found = [
                (int(_LOG_KEY.unpack(key)[1]), LogUsage(*_LOG_USAGE.unpack(value)))
                for key, value in self._store.descend(high, low)
            ]
            self._logs = dict(reversed(found))
        return self._logs

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """The record of a ledger, or None."""
        value = self._store.get(_LEDGER_KEY.pack(b"l", ledger_id))
        return None if value is None else decode_ledger_record(value)

    def ledgers(self, highest: int = _LEDGER_ID_MAX) -> Iterator[LedgerRecord]:
        """Every ledger on this bookie with an id up to ``highest``, highest first."""
        low, high = _LEDGER_KEY.pack(b"l", 0), _LEDGER_KEY.pack(b"l", highest)
        for _, value in self._store.descend(high, low):
            yield decode_ledger_record(value)

    def blocks(self, ledger_id: int, entry_id: int) -> Iterator[BlockLocation]:
        """Blocks that may hold the entry, the likeliest first."""
        low = _BLOCK_KEY.pack(b"b", ledger_id, max(0, entry_id - BLOCK_SPAN_MAX + 1), 0, 0)
        high = _BLOCK_KEY.pack(b"b", ledger_id, entry_id, _U32_MAX, _U64_MAX)
        for key, value in self._store.descend(high, low):
            at = _location(key, value)
            if at.last_entry >= entry_id:
                yield at

    def blocks_of(self, ledger_id: int) -> Iterator[BlockLocation]:
        """Every block of a ledger, the last first."""
        low = _BLOCK_KEY.pack(b"b", ledger_id, 0, 0, 0)
        high = _BLOCK_KEY.pack(b"b", ledger_id, _U64_MAX, _U32_MAX, _U64_MAX)
        for key, value in self._store.descend(high, low):
            yield _location(key, value)

    def blocks_in(self, log_number: int) -> Iterator[BlockLocation | None]:
        """Every block in an entry log; None for each in another, so that who asks can pause.

        Reads the whole index: for a log that does not tell any more what is in it.
        """
        low = _BLOCK_KEY.pack(b"b", 0, 0, 0, 0)
        high = _BLOCK_KEY.pack(b"b", _U64_MAX, _U64_MAX, _U32_MAX, _U64_MAX)
        for key, value in self._store.descend(high, low):
            yield _location(key, value) if _BLOCK_KEY.unpack(key)[3] == log_number else None

    def knows(self, at: BlockLocation) -> bool:
        """Whether this block, at this place, is one that reads may be sent to."""
        return self._store.get(_block_key(at)) is not None

    async def commit(self, change: Change) -> None:
        """Remember a change: durable on return, all of it or nothing after a crash.

        From now on there is an index, and no need to rebuild one.
        """
        self._write(change, [(_FORMAT_KEY, _FORMAT.pack(FORMAT_VERSION))])
        await self.flush()

    async def commit_part(self, change: Change) -> None:
        """Remember a part of what ``commit`` will complete, durably."""
        self._write(change, [])
        await self.flush()

    async def flush(self) -> None:
        """Make durable what was noted. Where it fails it is noted all the same: flush again."""
        await self._store.flush()

    def clear(self) -> None:
        """Forget everything: what an attempt to rebuild the index left that did not succeed."""
        low, high = b"\x00", b"\xff"
        while keys := [key for key, _ in islice(self._store.descend(high, low), KEYS_PER_CLEAR)]:
            self._store.write([], keys)
        self._logs = None

    def note(self, change: Change) -> None:
        """Remember a change till the next crash or, if ``commit`` comes before it, for good."""
        self._write(change, [])

    def _write(self, change: Change, pairs: list[Pair]) -> None:
        logs = self._logs_after(change)
        pairs += [_block_pair(at) for at in change.blocks]
        pairs += [
            (_LEDGER_KEY.pack(b"l", record.ledger_id), encode_ledger_record(record))
            for record in change.ledgers
        ]
        pairs += [
            (_LOG_KEY.pack(b"e", number), _LOG_USAGE.pack(usage.live_bytes, usage.end))
            for number, usage in logs.items()
        ]
        pairs += _meta_pairs(change)
        removed = [_block_key(at) for at in change.removed_blocks]
        removed += [_LEDGER_KEY.pack(b"l", ledger_id) for ledger_id in change.removed_ledgers]
        removed += [_LOG_KEY.pack(b"e", number) for number in change.removed_logs]
        self._store.write(pairs, removed)
        kept = {**self.logs, **logs}
        for number in change.removed_logs:
            kept.pop(number, None)
        self._logs = kept

    def _logs_after(self, change: Change) -> dict[int, LogUsage]:
        """The usage of every log that the change touches."""
        touched: dict[int, LogUsage] = {}
        signed = chain(
            ((1, at) for at in change.blocks), ((-1, at) for at in change.removed_blocks)
        )
        for sign, at in signed:
            usage = touched.get(at.log_number) or self.logs.get(at.log_number, LogUsage())
            live_bytes = usage.live_bytes + sign * at.size
            assert live_bytes >= 0, f"entry log {at.log_number} has less than nothing of use"
            touched[at.log_number] = LogUsage(live_bytes, max(usage.end, at.end))
        if change.log_end is not None:
            number, end = change.log_end.log_number, change.log_end.offset
            usage = touched.get(number) or self.logs.get(number, LogUsage())
            touched[number] = LogUsage(usage.live_bytes, max(usage.end, end))
        return touched


def _meta_pairs(change: Change) -> Iterator[Pair]:
    if change.counts is not None:
        yield _COUNTS_KEY, _COUNTS.pack(change.counts.ledgers, change.counts.entries)
    if change.log_end is not None:
        yield _LOG_END_KEY, _LOG_END.pack(change.log_end.log_number, change.log_end.offset)
    if change.journal_marks is not None:
        marks = [
            _JOURNAL_MARK.pack(mark.file_number, mark.offset, mark.next_group)
            for mark in change.journal_marks
        ]
        yield _JOURNAL_MARK_KEY, b"".join(marks)


def _block_key(at: BlockLocation) -> bytes:
    return _BLOCK_KEY.pack(b"b", at.ledger_id, at.first_entry, at.log_number, at.offset)


def _block_pair(at: BlockLocation) -> Pair:
    return _block_key(at), _BLOCK_VALUE.pack(at.last_entry, at.size, at.entries)


def _location(key: bytes, value: bytes) -> BlockLocation:
    _, ledger_id, first_entry, log_number, offset = _BLOCK_KEY.unpack(key)
    last_entry, size, entries = _BLOCK_VALUE.unpack(value)
    return BlockLocation(ledger_id, first_entry, last_entry, log_number, offset, size, entries)
