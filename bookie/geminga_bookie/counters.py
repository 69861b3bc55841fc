"""What a bookie counts: plain integers that hot paths add to and ``metrics`` reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_runtime.clock import Clock
from geminga_server.metrics import Durations


@dataclass(slots=True)
class Counters:
    """What sessions count since the start."""

    clock: Clock
    # Adds that were answered with success, and with a failure; those that were not even taken.
    adds: int = 0
    adds_failed: int = 0
    adds_refused: int = 0
    add_bytes: int = 0
    # Entries that were sent, and requests that were answered with a failure.
    reads: int = 0
    reads_failed: int = 0
    read_bytes: int = 0
    reads_in_progress: int = 0
    fence_reads: int = 0
    v3_requests: int = 0
    lac_writes: int = 0
    lac_reads: int = 0
    forces: int = 0
    # Connections that were closed because of what they sent.
    connections_faulty: int = 0
    # Milliseconds, of the reads that found their entry: of V2's single reads since they came, of
    # the others since their turn in the queue.
    read_durations: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class CollectionTotals:
    """What was collected as garbage since the start, under BookKeeper's names for it."""

    deleted_ledgers: int = 0
    minor_compactions: int = 0
    major_compactions: int = 0
    reclaimed_by_deletion_bytes: int = 0
    reclaimed_by_compaction_bytes: int = 0
    # Rounds that failed.
    failures: int = 0
    # When the last compaction of each kind ended, as Unix time. At first, as upstream, when the
    # bookie started.
    last_minor_ms: int = 0
    last_major_ms: int = 0
