"""A host's clocks: the loop's virtual time, and a wall that hangs askew and may jump."""

from __future__ import annotations

from geminga_simulation.loop import SimulatedLoop

# When every simulation begins: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000


class SimulatedClock:
    """Implements ``geminga_runtime.clock.Clock`` for one host.

    ``skew_ms`` is how far its wall time is from the true one; ``jump`` changes it. Durations are
    never touched: the monotonic clock is the loop's.
    """

    def __init__(self, loop: SimulatedLoop, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def monotonic(self) -> float:
        """Virtual seconds since the simulation began."""
        return self._loop.time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this host believes."""
        return WALL_START_MS + int(self._loop.time() * 1000) + self.skew_ms

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back where negative (NTP, an operator, a leap)."""
        self.skew_ms += milliseconds
