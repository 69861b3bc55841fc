"""What a load cost its server, and what its client saw: figures by phase and name."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tests.performance.rivals.processes import machine_busy_s

Figures = dict[str, float]
Phases = dict[str, Figures]


class LoadFailed(Exception):
    """A server did not do what the load asked of it; its figures would mean nothing."""


class Measured(Protocol):
    """Whatever uses CPU."""

    def cpu_s(self) -> float:
        """Seconds of CPU used so far that count."""
        ...

    def all_cpu_s(self) -> float:
        """The same with what does not count, but is no disturbance from outside either."""
        ...


@dataclass(slots=True)
class Measure:
    """CPU and time used inside a ``with`` block."""

    server: Measured
    wall_s: float = 0.0
    server_cpu_s: float = 0.0
    others_cpu_s: float = 0.0
    _begun: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._begun = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s, self.server_cpu_s, others_s = (
            after - before for after, before in zip(self._now(), self._begun, strict=True)
        )
        self.others_cpu_s = max(0.0, others_s)

    def _now(self) -> tuple[float, float, float]:
        own = os.times()
        ours_s = self.server.all_cpu_s() + own.user + own.system
        return time.perf_counter(), self.server.cpu_s(), machine_busy_s() - ours_s

    def figures(self, messages: int) -> Figures:
        """Server CPU in us a message, messages a second, cores that others kept busy."""
        return {
            "cpu_us": self.server_cpu_s / messages * 1e6,
            "per_s": messages / self.wall_s,
            "other_cores": self.others_cpu_s / self.wall_s,
        }

    def volume(self, size_bytes: int) -> Figures:
        """MB (10**6 bytes) a second, and MB for each second of server CPU."""
        return {
            "mb_per_s": size_bytes / self.wall_s / 1e6,
            "mb_per_core": size_bytes / self.server_cpu_s / 1e6,
        }


def percentiles(values: Sequence[float]) -> Figures:
    """The middle and the tail of ``values``, which are milliseconds."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        f"p{name}_ms": ordered[min(last, int(len(ordered) * share))]
        for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
