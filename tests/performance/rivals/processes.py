"""What a server uses: CPU and memory of a process and all its descendants (Linux).

CPU is read from each process's own clock, which counts nanoseconds and every thread, ended ones
too: the ticks of ``/proc`` would blur what a short load costs. A process that ends takes its part
along, so a measure holds only while all of them live.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
# The clock of a process, as clock_getcpuclockid(3) makes it: the pid's complement, shifted by three
# bits that say "of a whole process, as the scheduler counted it".
CLOCK_PID_SHIFT = 3
CLOCK_OF_SCHEDULER = 2


class ProcessTree:
    """The process ``root`` and everything below it, looked up anew at each question."""

    def __init__(self, root: int) -> None:
        self.root = root

    def pids(self) -> list[int]:
        """All process ids, the root first."""
        children: dict[int, list[int]] = {}
        for pid, parent in parents():
            children.setdefault(parent, []).append(pid)
        found = [self.root]
        for pid in found:
            found.extend(children.get(pid, []))
        return found

    def cpu_s(self) -> float:
        """Seconds of CPU, user and system, used so far by the processes living now."""
        return sum(process_cpu_s(pid) for pid in self.pids())

    def pss_mb(self) -> float:
        """Memory in MB (2**20); pages shared by several processes are divided between them."""
        return sum(map(process_pss_mb, self.pids()))


def parents() -> Iterator[tuple[int, int]]:
    """Each process with its parent (``stat`` of proc(5): the second field after the name)."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            yield int(entry.name), int(text.rpartition(")")[2].split()[1])


def process_cpu_s(pid: int) -> float:
    """Seconds of CPU that one process used so far; 0 for one that ended."""
    try:
        return time.clock_gettime((~pid << CLOCK_PID_SHIFT) | CLOCK_OF_SCHEDULER)
    except OSError:
        return 0.0  # it ended meanwhile


def process_pss_mb(pid: int) -> float:
    """The same of one process; 0 for one that ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def machine_busy_s() -> float:
    """Seconds of CPU used on the whole machine since it started, and those it was denied.

    The first line of ``/proc/stat`` without idle and waiting for disks; with ``steal``, for a
    neighbour on the same host disturbs as one on the same machine does.
    """
    first = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in first[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
