"""Where things are: blocks of entries by ledger and entry, ledger records, how far checkpoints got.

One record for each block, not for each entry. The keys are laid out here; what keeps them sorted on
a disk is a ``SortedStore``, which has no log of its own: what it loses in a crash is still in the
journal, because the journal is trimmed only after ``commit`` has flushed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from magnetar_bookie.formats.entry_log_v1 import (
    BLOCK_SPAN_MAX,
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)

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

    def write(self, pairs: Sequence[Pair]) -> None:
        """Put all pairs; after a crash either all are there or none."""
        ...

    async def flush(self) -> None:
        """Return when everything written so far is on stable storage."""
        ...


# Keys begin with a letter for what they are:
# block:   +-----+-----------+-------------+---------------+--------+
#          | "b" | ledger_id | first entry | entry log no. | offset |         value: last entry i64,
#          |     |  u64      |  u64        |  u32          |  u64   |                size u32
#          +-----+-----------+-------------+---------------+--------+
#          An entry that was added twice (sent again, or by recovery) stands in two blocks. Either
#          copy is right: they differ at most in the last-add-confirmed their writers knew.
# ledger:  +-----+-----------+
#          | "l" | ledger_id |                                           value: a ledger record
#          |     |  u64      |
#          +-----+-----------+
# meta:    "m" and a word                                               value: as below
_BLOCK_KEY = Struct(">cQQIQ")
_BLOCK_VALUE = Struct(">qI")
_LEDGER_KEY = Struct(">cQ")
_JOURNAL_MARK = Struct(">QQQ")
_LOG_END = Struct(">IQ")
_COUNTS = Struct(">QQ")
_FORMAT = Struct(">H")
_JOURNAL_MARK_KEY = b"mjournal_mark"
_LOG_END_KEY = b"mentry_log_end"
_COUNTS_KEY = b"mcounts"
_FORMAT_KEY = b"mformat"
FORMAT_VERSION = 1
_U32_MAX = 0xFFFF_FFFF
_U64_MAX = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A block in an entry log: its bytes, header included, and the entry ids it spans."""

    ledger_id: int
    first_entry: int
    last_entry: int
    log_number: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class JournalMark:
    """Everything in the journal before ``offset`` of file ``file_number`` is in the entry logs.

    ``next_group`` is the number of the group that begins there.
    """

    file_number: int
    offset: int
    next_group: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Up to where entry logs are known to the index: bytes behind ``offset`` belong to nobody."""

    log_number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How much the entry logs hold: ledgers, and entries (one added twice counts twice)."""

    ledgers: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the index is told when entries have reached the entry logs.

    ``journal_mark`` is None where the journal's place is not known (after a rebuild): then it is
    replayed from its beginning.
    """

    blocks: Sequence[BlockLocation]
    ledgers: Sequence[LedgerRecord]
    log_end: LogEnd | None
    journal_mark: JournalMark | None
    counts: Counts


EMPTY_CHECKPOINT = Checkpoint(
    blocks=(), ledgers=(), log_end=None, journal_mark=None, counts=Counts()
)


class Index:
    """Blocks, ledgers and marks in a sorted store."""

    def __init__(self, store: SortedStore) -> None:
        self._store = store

    @property
    def format_version(self) -> int | None:
        """The version the index was written with; None where it is new (or was lost)."""
        value = self._store.get(_FORMAT_KEY)
        return None if value is None else int(_FORMAT.unpack(value)[0])

    def journal_mark(self) -> JournalMark | None:
        """From where the journal must be replayed; None: from its beginning."""
        value = self._store.get(_JOURNAL_MARK_KEY)
        return None if value is None else JournalMark(*_JOURNAL_MARK.unpack(value))

    def log_end(self) -> LogEnd | None:
        """Where the last checkpoint's entry log ended; None where there was none."""
        value = self._store.get(_LOG_END_KEY)
        return None if value is None else LogEnd(*_LOG_END.unpack(value))

    def counts(self) -> Counts:
        """How much the last checkpoint left in the entry logs."""
        value = self._store.get(_COUNTS_KEY)
        return Counts() if value is None else Counts(*_COUNTS.unpack(value))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """The record of a ledger, or None."""
        value = self._store.get(_LEDGER_KEY.pack(b"l", ledger_id))
        return None if value is None else decode_ledger_record(value)

    def ledgers(self) -> Iterator[LedgerRecord]:
        """Every ledger on this bookie, highest id first."""
        low, high = _LEDGER_KEY.pack(b"l", 0), _LEDGER_KEY.pack(b"l", _U64_MAX)
        for _, value in self._store.descend(high, low):
            yield decode_ledger_record(value)

    def blocks(self, ledger_id: int, entry_id: int) -> Iterator[BlockLocation]:
        """Blocks that may hold the entry, the likeliest first."""
        low = _BLOCK_KEY.pack(b"b", ledger_id, max(0, entry_id - BLOCK_SPAN_MAX + 1), 0, 0)
        high = _BLOCK_KEY.pack(b"b", ledger_id, entry_id, _U32_MAX, _U64_MAX)
        for key, value in self._store.descend(high, low):
            last_entry, size = _BLOCK_VALUE.unpack(value)
            if last_entry >= entry_id:
                _, _, first_entry, log_number, offset = _BLOCK_KEY.unpack(key)
                yield BlockLocation(ledger_id, first_entry, last_entry, log_number, offset, size)

    def blocks_of(self, ledger_id: int) -> Iterator[BlockLocation]:
        """All blocks of a ledger, those with the highest entries first."""
        low = _BLOCK_KEY.pack(b"b", ledger_id, 0, 0, 0)
        high = _BLOCK_KEY.pack(b"b", ledger_id, _U64_MAX, _U32_MAX, _U64_MAX)
        for key, value in self._store.descend(high, low):
            last_entry, size = _BLOCK_VALUE.unpack(value)
            _, _, first_entry, log_number, offset = _BLOCK_KEY.unpack(key)
            yield BlockLocation(ledger_id, first_entry, last_entry, log_number, offset, size)

    async def commit_blocks(self, blocks: Sequence[BlockLocation]) -> None:
        """Remember blocks alone: a part of what ``commit`` will complete."""
        self._store.write([_block_pair(at) for at in blocks])
        await self._store.flush()

    async def commit(self, checkpoint: Checkpoint) -> None:
        """Remember a checkpoint: durable on return, all of it or nothing after a crash."""
        counts = checkpoint.counts
        pairs = [_block_pair(at) for at in checkpoint.blocks]
        pairs += [
            (_LEDGER_KEY.pack(b"l", record.ledger_id), encode_ledger_record(record))
            for record in checkpoint.ledgers
        ]
        pairs.append((_FORMAT_KEY, _FORMAT.pack(FORMAT_VERSION)))
        pairs.append((_COUNTS_KEY, _COUNTS.pack(counts.ledgers, counts.entries)))
        if checkpoint.log_end is not None:
            end = checkpoint.log_end
            pairs.append((_LOG_END_KEY, _LOG_END.pack(end.log_number, end.offset)))
        if checkpoint.journal_mark is not None:
            mark = checkpoint.journal_mark
            value = _JOURNAL_MARK.pack(mark.file_number, mark.offset, mark.next_group)
            pairs.append((_JOURNAL_MARK_KEY, value))
        self._store.write(pairs)
        await self._store.flush()


def _block_pair(at: BlockLocation) -> Pair:
    key = _BLOCK_KEY.pack(b"b", at.ledger_id, at.first_entry, at.log_number, at.offset)
    return key, _BLOCK_VALUE.pack(at.last_entry, at.size)
