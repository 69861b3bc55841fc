"""The index's layout, version 2: its keys and values, and what they stand for.

The index is a sorted store of small pairs: one for each block of entries (not for each entry), one
for each ledger, one for each entry log, and a few about the bookie as a whole. Integers in keys are
big-endian, so that keys sort by ledger and entry. ``geminga_bookie.index`` keeps the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

Pair = tuple[bytes, bytes]

# Version 1 had no records of entry logs, and no number of entries in a block's value.
FORMAT_VERSION = 2

# Keys begin with a letter for what they are:
# block:   +-----+-----------+-------------+---------------+--------+
#          | "b" | ledger_id | first entry | entry log no. | offset |   value: last entry i64, size
#          |     |  u64      |  u64        |  u32          |  u64   |          u32, entries u32
#          +-----+-----------+-------------+---------------+--------+
#          An entry that was added twice (sent again, or by recovery) stands in two blocks. Either
#          copy is right: they differ at most in the last-add-confirmed their writers knew.
# ledger:  +-----+-----------+
#          | "l" | ledger_id |                                           value: a ledger record
#          |     |  u64      |                                           (``entry_log_v1`` draws it)
#          +-----+-----------+
# log:     +-----+---------------+
#          | "e" | entry log no. |                value: bytes of the blocks known in it u64,
#          |     |  u32          |                       end of the last block ever known u64
#          +-----+---------------+
# meta:    "mjournal_mark"     value: for each journal file number u64, offset u64, next group u64
#          "mentry_log_end"    value: entry log no. u32, offset u64
#          "mcounts"           value: ledgers u64, entries u64
#          "mformat"           value: version u16
_BLOCK_KEY = Struct(">cQQIQ")
_BLOCK_VALUE = Struct(">qII")
_LEDGER_KEY = Struct(">cQ")
_LOG_KEY = Struct(">cI")
# The values that are a few numbers: of LogUsage, JournalMark, LogEnd, Counts, and the version.
LOG_USAGE = Struct(">QQ")
JOURNAL_MARK = Struct(">QQQ")
LOG_END = Struct(">IQ")
COUNTS = Struct(">QQ")
FORMAT = Struct(">H")
JOURNAL_MARK_KEY = b"mjournal_mark"
LOG_END_KEY = b"mentry_log_end"
COUNTS_KEY = b"mcounts"
FORMAT_KEY = b"mformat"
U32_MAX = 0xFFFF_FFFF
U64_MAX = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A block of entries in an entry log: which entries it spans, and where it stands."""

    ledger_id: int
    # The ids of the first and the last entry. The block may lack some of those between them, where
    # the ledger is striped over other bookies.
    first_entry: int
    last_entry: int
    log_number: int
    offset: int
    # Bytes, the block's header included.
    size: int
    # How many entries the block holds.
    entries: int

    @property
    def end(self) -> int:
        """The offset behind the block."""
        return self.offset + self.size

    @property
    def is_dense(self) -> bool:
        """Whether the block holds every entry that it spans."""
        return self.last_entry - self.first_entry == self.entries - 1


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The place behind the last block that the index knows.

    Bytes behind ``offset`` of log ``log_number``, and later logs, are leftovers of a checkpoint or
    a compaction that did not finish: the next start cuts them off.
    """

    log_number: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogUsage:
    """How much of an entry log is still in use."""

    # The sizes of the blocks that the index knows in the log. 0: the log can be removed.
    live_bytes: int = 0
    # The offset behind the last block that was ever known: a shorter file has lost bytes.
    end: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What the entry logs hold: ledgers, and entries (an entry that was added twice counts twice).

    Kept for metrics only.
    """

    ledgers: int = 0
    entries: int = 0


def block_key(at: BlockLocation) -> bytes:
    """The key of a block."""
    # The place is in the key, so that a copy in another log is another pair: compaction adds one
    # and removes the other in one write, and an entry that was added twice keeps both of its
    # blocks.
    return _BLOCK_KEY.pack(b"b", at.ledger_id, at.first_entry, at.log_number, at.offset)


def block_pair(at: BlockLocation) -> Pair:
    """The key and value of a block."""
    return block_key(at), _BLOCK_VALUE.pack(at.last_entry, at.size, at.entries)


def decode_block(key: bytes, value: bytes) -> BlockLocation:
    """The block that ``block_pair`` encoded."""
    _, ledger_id, first_entry, log_number, offset = _BLOCK_KEY.unpack(key)
    last_entry, size, entries = _BLOCK_VALUE.unpack(value)
    return BlockLocation(ledger_id, first_entry, last_entry, log_number, offset, size, entries)


def block_keys(
    ledgers: tuple[int, int], first_entries: tuple[int, int] = (0, U64_MAX)
) -> tuple[bytes, bytes]:
    """The lowest and highest key that a block of these ledgers can have.

    Of the lowest and highest ledger, only blocks whose first entry is in ``first_entries`` count.
    """
    # The place comes last in a key, so that the lowest and the highest place close the range.
    low = _BLOCK_KEY.pack(b"b", ledgers[0], first_entries[0], 0, 0)
    return low, _BLOCK_KEY.pack(b"b", ledgers[1], first_entries[1], U32_MAX, U64_MAX)


def ledger_key(ledger_id: int) -> bytes:
    """The key of a ledger's record."""
    return _LEDGER_KEY.pack(b"l", ledger_id)


def log_key(number: int) -> bytes:
    """The key of an entry log's usage."""
    return _LOG_KEY.pack(b"e", number)


def log_number(key: bytes) -> int:
    """The number in the key of an entry log's usage."""
    return int(_LOG_KEY.unpack(key)[1])
