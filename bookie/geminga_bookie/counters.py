"""What a bookie counts: plain integers that hot paths add to and ``metrics`` reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_runtime.clock import Clock
from geminga_server.metrics import Durations


@dataclass(slots=True)
class Counters:
    """Counts since the start; ``read_durations`` are of the reads that found their entry."""

    clock: Clock
    adds: int = 0
    adds_failed: int = 0
    adds_refused: int = 0
    add_bytes: int = 0
    reads: int = 0
    reads_failed: int = 0
    read_bytes: int = 0
    reads_in_progress: int = 0
    fence_reads: int = 0
    v3_requests: int = 0
    lac_writes: int = 0
    lac_reads: int = 0
    forces: int = 0
    connections_faulty: int = 0
    read_durations: Durations = field(default_factory=Durations)
