"""How busy this broker's process is, according to the operating system; for load reports.

A broker works in one thread, so its limit is one core, whatever else the machine has: brokers that
share a machine report different loads. Upstream reports the whole machine's CPU.
"""

from __future__ import annotations

import os
import resource

from geminga_protocol.records.cluster.brokers import ResourceUsage
from geminga_runtime.clock import Clock

CORE_PERCENT = 100.0
MIB = 1024 * 1024


# The base is the twin without a process: a ``ResourceUsage`` without limit counts as "not known" in
# the shares that brokers compare (``used_share``).
class Usage:
    """The usage as far as it is known: not at all where the broker has no process of its own, as in
    a simulation."""

    cpu = ResourceUsage()
    memory = ResourceUsage()

    def renew(self) -> None:
        """Measure what was used in the stats period that ends now."""


class ProcessUsage(Usage):
    """The usage of this process: percent of a core over the last period, and MiB at most so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Both at once: a percentage is the CPU time between two measurements over the time between
        # them.
        self._measured_s, self._cpu_s = clock.monotonic(), _cpu_s()
        # The limit is all memory of the machine: brokers that share one report the same limit.
        self._memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB
        self.cpu = ResourceUsage(limit=CORE_PERCENT)
        self.memory = self._memory()

    def renew(self) -> None:
        """Measure the CPU of this period, and the memory at most so far."""
        now_s, cpu_s = self._clock.monotonic(), _cpu_s()
        passed_s = now_s - self._measured_s
        # A period without length says nothing: the figure of the one before stays.
        if passed_s > 0:
            percent = (cpu_s - self._cpu_s) / passed_s * CORE_PERCENT
            self.cpu = ResourceUsage(usage=percent, limit=CORE_PERCENT)
        self._measured_s, self._cpu_s = now_s, cpu_s
        self.memory = self._memory()

    def _memory(self) -> ResourceUsage:
        # The peak since the process began; Linux gives it in KiB. Memory does not decide on
        # placements (``BrokerLoad.usage``); it is shown to operators.
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return ResourceUsage(usage=peak_kib / 1024, limit=self._memory_mib)


def _cpu_s() -> float:
    # Of all threads of the process: it may be more than one core.
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
