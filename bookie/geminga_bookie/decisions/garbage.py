"""What is garbage, and when it is looked for.

The rules are those of BookKeeper's ``ScanAndCompareGarbageCollector`` and
``GarbageCollectorThread``: a ledger is garbage when its metadata is gone, or when it is closed and
this bookie is in none of its fragments. Where ZooKeeper did not answer, nothing is known. Unlike
upstream, copies elsewhere count only on bookies that are alive.

A round looks for deleted ledgers. Now and then it also compacts entry logs: a minor compaction
takes logs of which little is in use, a major one, less often, logs of which more is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from geminga_bookie.config import GarbageConfig
from geminga_bookie.formats.index_v2 import LogUsage
from geminga_protocol.records.ledgers.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    ledger_path,
)

# What copies cost besides their bytes: a new file's header, the list of files, ledger records.
COPY_OVERHEAD_BYTES = 16 * 1024
# What giving up the current log must free: less is not worth a new file.
LEFT_BYTES_MIN = 1024 * 1024


class CompactionKind(Enum):
    """Which compaction is due, or under way; the value is its word in logs."""

    NONE = "none"
    MINOR = "minor"
    MAJOR = "major"


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """What one round does besides looking for deleted ledgers, which each does."""

    compaction: CompactionKind
    is_over_replication_due: bool


class RoundPlanner:
    """Decides what the next round does. Seconds are of one monotonic clock."""

    def __init__(self, limits: GarbageConfig, now_s: float) -> None:
        self._limits = limits
        # When each was done last; the start counts, so that a restart begins none.
        self._minor_s = self._major_s = self._over_replicated_s = now_s

    def next(
        self,
        now_s: float,
        *,
        is_forced: bool,
        may_minor: bool,
        may_major: bool,
    ) -> PlannedRound:
        """Plan the round that begins now; it counts as done.

        A forced one does all that is configured. ``may_minor`` and ``may_major`` say whether that
        compaction is allowed now: the disks must have room for copies before the originals go.
        """
        limits = self._limits
        # What was not allowed is not counted as done: it is due again in the next round.
        compaction = CompactionKind.NONE
        # At most one compaction a round, the greater one where both are due.
        if may_major and _is_due(
            self._major_s, limits.major_compaction_interval_s, now_s, is_forced=is_forced
        ):
            compaction = CompactionKind.MAJOR
            # A major compaction takes whatever a minor one would.
            self._major_s = self._minor_s = now_s
        elif may_minor and _is_due(
            self._minor_s, limits.minor_compaction_interval_s, now_s, is_forced=is_forced
        ):
            compaction = CompactionKind.MINOR
            self._minor_s = now_s
        # Rare, because it asks ZooKeeper for the metadata of every ledger.
        interval_s = limits.gc_over_replicated_interval_s
        is_due = _is_due(self._over_replicated_s, interval_s, now_s, is_forced=is_forced)
        if is_due:
            self._over_replicated_s = now_s
        return PlannedRound(compaction, is_due)

    def threshold(self, compaction: CompactionKind) -> float:
        """The share of a log that must be in use for a compaction to leave it alone."""
        if compaction is CompactionKind.MAJOR:
            return self._limits.major_compaction_threshold
        # Below 0.0 no log is, so that a round without a compaction chooses none.
        return (
            self._limits.minor_compaction_threshold if compaction is CompactionKind.MINOR else 0.0
        )

    @property
    def highest_threshold(self) -> float:
        """The highest threshold of the compactions that are turned on; 0 where none is."""
        limits = self._limits
        return max(
            limits.minor_compaction_threshold if limits.minor_compaction_interval_s else 0.0,
            limits.major_compaction_threshold if limits.major_compaction_interval_s else 0.0,
        )


def _is_due(last_s: float, interval_s: float, now_s: float, *, is_forced: bool) -> bool:
    # An interval of 0 turns the work off for forced rounds too.
    return interval_s > 0 and (is_forced or now_s - last_s >= interval_s)


def parents_of(ledger_ids: Iterable[int]) -> dict[str, list[int]]:
    """Group ledgers by the ZooKeeper node whose children say which of them exist."""
    # Listing a parent answers for thousands of ledgers at once.
    parents: dict[str, list[int]] = {}
    for ledger_id in ledger_ids:
        # The order of the ids stays: a round looks at the newest ledgers first.
        parents.setdefault(ledger_path(ledger_id).rpartition("/")[0], []).append(ledger_id)
    return parents


def unlisted(ledger_ids: Iterable[int], children: Collection[str]) -> list[int]:
    """The ledgers of one parent node that are not among its children."""
    # Of these, ``L0005`` and the like count; other nodes below the parent do no harm.
    names = frozenset(children)
    return [
        ledger_id
        for ledger_id in ledger_ids
        if ledger_path(ledger_id).rpartition("/")[2] not in names
    ]


def is_over_replicated(
    metadata: LedgerMetadata, bookie_id: str, live_bookies: Collection[str]
) -> bool:
    """Whether the ledger has all its copies elsewhere, for good.

    An open ledger may get this bookie into its ensemble again at any moment. And while one of its
    bookies is not among ``live_bookies`` (registered, writable or read-only), what is here may be
    the only copy: that bookie may even be this one, under an id that it lost.
    """
    # Of all fragments: an ensemble change leaves the entries of older ones where they are.
    holders = {each for fragment in metadata.fragments for each in fragment.ensemble}
    return (
        metadata.state is LedgerState.CLOSED
        and bookie_id not in holders
        and holders.issubset(live_bookies)
    )


def dead_logs(numbers: Sequence[int], logs: Mapping[int, LogUsage], end: int) -> list[int]:
    """The logs before log ``end`` of which nothing is in use, of those that exist."""
    # The current log stays even when it is empty: checkpoints go on in it.
    nothing = LogUsage()
    return [
        number for number in numbers if number < end and not logs.get(number, nothing).live_bytes
    ]


def logs_to_compact(logs: Mapping[int, LogUsage], end: int, threshold: float) -> list[int]:
    """Logs before log ``end`` of which less than ``threshold`` is in use, the emptiest first."""
    # Of its known length, not of the file's: what a crash left behind it is no garbage to collect.
    # The emptiest first: they free the most for what they cost.
    shares = {
        number: usage.live_bytes / usage.end
        for number, usage in logs.items()
        if number < end and usage.end and usage.live_bytes
    }
    # Without the empty logs, which are removed and not compacted, and without the current one.
    chosen = [number for number, share in shares.items() if share < threshold]
    return sorted(chosen, key=lambda number: (shares[number], number))


def has_room(usage: LogUsage, free_bytes: int) -> bool:
    """Whether what is in use of a log can be copied before the log is removed.

    The copies may take half of what is free. The other half is for the journal, the index and
    checkpoints, which may share the disk.
    """
    return usage.live_bytes + COPY_OVERHEAD_BYTES <= free_bytes // 2


def is_worth_leaving(usage: LogUsage, threshold: float) -> bool:
    """Whether the current log should be given up on a full disk, for what that would free."""
    return (
        usage.end - usage.live_bytes >= LEFT_BYTES_MIN and usage.live_bytes < usage.end * threshold
    )
