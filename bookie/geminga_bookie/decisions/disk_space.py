"""What follows from how full the ledger disks are: where files begin, whether adds are taken.

Decisions only; ``space_watch`` measures. The rules are upstream's (``LedgerDirsMonitor``): a disk
that is used beyond the threshold gets no new files; when all are, the bookie is read-only and takes
only what recovery has to store, while there is room for an entry log or so. It takes adds again
when the disks together are used less than the low-water mark. Compaction needs room for its copies,
so a nearly full disk puts it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_bookie.config import SpaceConfig


@dataclass(frozen=True, slots=True)
class DiskState:
    """What was measured of one disk, and what was thought of it before."""

    capacity_bytes: int
    free_bytes: int
    was_full: bool


@dataclass(frozen=True, slots=True)
class SpaceVerdict:
    """What to do: which disks count as full (in order), and what the bookie may still do."""

    is_full: tuple[bool, ...]
    takes_adds: bool
    takes_recovery_adds: bool
    may_minor: bool
    may_major: bool


def usage_of(capacity_bytes: int, free_bytes: int) -> float:
    """The used part, 0 to 1; of a disk that holds nothing at all, 1."""
    return 1 - free_bytes / capacity_bytes if capacity_bytes else 1.0


def judge(limits: SpaceConfig, disks: Sequence[DiskState]) -> SpaceVerdict:
    """Decide from what was measured."""
    usages = [usage_of(disk.capacity_bytes, disk.free_bytes) for disk in disks]
    full = [usage > limits.disk_usage_threshold for usage in usages]
    if all(disk.was_full for disk in disks):
        # All were full. One that was freed a little counts again only when all together are below
        # the low-water mark: or the bookie would change its mind every few seconds.
        capacity_bytes = sum(disk.capacity_bytes for disk in disks)
        usage = usage_of(capacity_bytes, sum(disk.free_bytes for disk in disks))
        if usage >= limits.low_water_mark:
            full = [True] * len(disks)
    may = limits.compacts_when_full
    is_nearly_full = any(usage > limits.disk_usage_warn_threshold for usage in usages)
    return SpaceVerdict(
        is_full=tuple(full),
        takes_adds=not all(full),
        takes_recovery_adds=any(
            disk.free_bytes >= limits.recovery_free_bytes_min for disk in disks
        ),
        may_minor=may or not any(full),
        may_major=may or not (is_nearly_full or any(full)),
    )
