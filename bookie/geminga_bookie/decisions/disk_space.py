"""What follows from how full the ledger disks are: where files begin, whether adds are taken.

The rules are upstream's (``LedgerDirsMonitor``). A disk that is used beyond the threshold gets no
new files. When all are, the bookie is read-only and takes only what recovery has to store, while
there is room for an entry log or so. It takes adds again when the disks together are used less than
the low-water mark. Compaction needs room for its copies, so a nearly full disk puts it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_bookie.config import SpaceConfig


@dataclass(frozen=True, slots=True)
class DiskState:
    """What was measured of one disk."""

    capacity_bytes: int
    free_bytes: int
    # What the last verdict said of it.
    was_full: bool


@dataclass(frozen=True, slots=True)
class SpaceVerdict:
    """What the bookie may still do."""

    # Of each disk, in order: whether it counts as full.
    is_full: tuple[bool, ...]
    takes_adds: bool
    # Whether adds of ledger recovery are taken even where others are not.
    takes_recovery_adds: bool
    # Whether minor and major compactions may run.
    may_minor: bool
    may_major: bool


def usage_of(capacity_bytes: int, free_bytes: int) -> float:
    """The used part of a disk, 0 to 1; 1 where its capacity is not known."""
    return 1 - free_bytes / capacity_bytes if capacity_bytes else 1.0


def judge(limits: SpaceConfig, disks: Sequence[DiskState]) -> SpaceVerdict:
    """Decide from what was measured."""
    usages = [usage_of(disk.capacity_bytes, disk.free_bytes) for disk in disks]
    full = [usage > limits.disk_usage_threshold for usage in usages]
    #     writable  --all disks are beyond the threshold-----> read-only
    #     read-only --together they are below low_water_mark--> writable, where one is not full
    if all(disk.was_full for disk in disks):
        # The bookie is read-only. A disk that was freed a little does not count until all together
        # are below the low-water mark, or the bookie would change its mind every few seconds.
        capacity_bytes = sum(disk.capacity_bytes for disk in disks)
        usage = usage_of(capacity_bytes, sum(disk.free_bytes for disk in disks))
        if usage >= limits.low_water_mark:
            full = [True] * len(disks)
    may = limits.compacts_when_full
    is_nearly_full = any(usage > limits.disk_usage_warn_threshold for usage in usages)
    return SpaceVerdict(
        is_full=tuple(full),
        takes_adds=not all(full),
        # Upstream's ``isAvailableForHighPriorityWrites``: one disk with room is enough, as new
        # files go there.
        takes_recovery_adds=any(
            disk.free_bytes >= limits.recovery_free_bytes_min for disk in disks
        ),
        may_minor=may or not any(full),
        may_major=may or not (is_nearly_full or any(full)),
    )
