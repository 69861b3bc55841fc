"""What is garbage: ledgers that nobody knows any more, entry logs that hold mostly such; and when
to look. Decisions only: ``collector`` asks ZooKeeper and acts, ``compaction`` moves what lives.

The rules are those of BookKeeper's ``ScanAndCompareGarbageCollector`` and
``GarbageCollectorThread``: a ledger is garbage when its metadata is gone, or when it is closed and
this bookie is in none of its fragments. That ZooKeeper did not answer says nothing of either.
Unlike upstream's, copies elsewhere count only on bookies that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from geminga_bookie.config import GarbageConfig
from geminga_bookie.formats.index_v2 import LogUsage
from geminga_protocol.records.ledger_metadata import LedgerMetadata, LedgerState, ledger_path

# What copies cost besides their bytes: a new file's header, the list of files, ledger records.
COPY_OVERHEAD_BYTES = 16 * 1024
# Less is not worth a new file.
LEFT_BYTES_MIN = 1024 * 1024


class CompactionKind(Enum):
    """How far a compaction goes; the value is its word in logs."""

    NONE = "none"
    MINOR = "minor"
    MAJOR = "major"


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """What one round has to do. Deleted ledgers are looked for in each."""

    compaction: CompactionKind
    is_over_replication_due: bool


class RoundPlanner:
    """Decides what the next round has to do. Seconds are of one monotonic clock."""

    def __init__(self, limits: GarbageConfig, now_s: float) -> None:
        self._limits = limits
        self._minor_s = self._major_s = self._over_replicated_s = now_s

    def next(
        self,
        now_s: float,
        *,
        is_forced: bool,
        may_minor: bool,
        may_major: bool,
    ) -> PlannedRound:
        """The round that begins now; it counts as done.

        A forced one does all that is configured. ``may_minor`` and ``may_major`` say whether the
        disks have room for copies of whatever is due before what was copied goes.
        """
        limits = self._limits
        compaction = CompactionKind.NONE
        if may_major and _is_due(
            self._major_s, limits.major_compaction_interval_s, now_s, is_forced=is_forced
        ):
            compaction = CompactionKind.MAJOR
            self._major_s = self._minor_s = now_s
        elif may_minor and _is_due(
            self._minor_s, limits.minor_compaction_interval_s, now_s, is_forced=is_forced
        ):
            compaction = CompactionKind.MINOR
            self._minor_s = now_s
        interval_s = limits.gc_over_replicated_interval_s
        is_due = _is_due(self._over_replicated_s, interval_s, now_s, is_forced=is_forced)
        if is_due:
            self._over_replicated_s = now_s
        return PlannedRound(compaction, is_due)

    def threshold(self, compaction: CompactionKind) -> float:
        """Which share of a log must be of use for it to be left alone."""
        if compaction is CompactionKind.MAJOR:
            return self._limits.major_compaction_threshold
        return (
            self._limits.minor_compaction_threshold if compaction is CompactionKind.MINOR else 0.0
        )

    @property
    def highest_threshold(self) -> float:
        """The highest share that any compaction leaves alone; 0 where all are turned off."""
        limits = self._limits
        return max(
            limits.minor_compaction_threshold if limits.minor_compaction_interval_s else 0.0,
            limits.major_compaction_threshold if limits.major_compaction_interval_s else 0.0,
        )


def _is_due(last_s: float, interval_s: float, now_s: float, *, is_forced: bool) -> bool:
    return interval_s > 0 and (is_forced or now_s - last_s >= interval_s)


def parents_of(ledger_ids: Iterable[int]) -> dict[str, list[int]]:
    """The nodes whose children must be listed to know which of these ledgers exist."""
    parents: dict[str, list[int]] = {}
    for ledger_id in ledger_ids:
        parents.setdefault(ledger_path(ledger_id).rpartition("/")[0], []).append(ledger_id)
    return parents


def unlisted(ledger_ids: Iterable[int], children: Collection[str]) -> list[int]:
    """Those of one parent's ledgers that are not among its children."""
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

    An open one may get this bookie into its ensemble again at any moment. And while one of its
    bookies is not among ``live_bookies`` (registered, writable or read-only), what is here may be
    the only copy: that bookie may be this one, under an id that it lost.
    """
    holders = {each for fragment in metadata.fragments for each in fragment.ensemble}
    return (
        metadata.state is LedgerState.CLOSED
        and bookie_id not in holders
        and holders.issubset(live_bookies)
    )


def dead_logs(numbers: Sequence[int], logs: Mapping[int, LogUsage], end: int) -> list[int]:
    """Of the logs that exist, those before log ``end`` of which nothing is of use."""
    nothing = LogUsage()
    return [
        number for number in numbers if number < end and not logs.get(number, nothing).live_bytes
    ]


def logs_to_compact(logs: Mapping[int, LogUsage], end: int, threshold: float) -> list[int]:
    """Logs before log ``end`` of which less than ``threshold`` is of use, the emptiest first."""
    shares = {
        number: usage.live_bytes / usage.end
        for number, usage in logs.items()
        if number < end and usage.end and usage.live_bytes
    }
    chosen = [number for number, share in shares.items() if share < threshold]
    return sorted(chosen, key=lambda number: (shares[number], number))


def has_room(usage: LogUsage, free_bytes: int) -> bool:
    """Whether a log can be copied before it goes: the copies take at most half of what is free.

    The other half is for the journal, the index and checkpoints, which may share the disk.
    """
    return usage.live_bytes + COPY_OVERHEAD_BYTES <= free_bytes // 2


def is_worth_leaving(usage: LogUsage, threshold: float) -> bool:
    """Whether the log that is written to is given up on a full disk: for all that would free."""
    return (
        usage.end - usage.live_bytes >= LEFT_BYTES_MIN and usage.live_bytes < usage.end * threshold
    )
