"""A host's clocks: one that shows how virtual time passes, at its own rate, and a wall that hangs
askew and may jump."""

from __future__ import annotations

from asyncio.events import _get_running_loop

from geminga_simulation.event_loop.incarnation import Pace
from geminga_simulation.event_loop.loop import SimulatedLoop

# When every simulation begins: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000


class SimulatedClock:
    """Implements ``geminga_runtime.clock.Clock`` for one host.

    It shows the virtual time of ``loop``; without one, that of the simulated loop that runs when it
    is read, and where none runs it stands still. ``skew_ms`` is how far its wall time is from the
    true one; ``jump`` changes it and touches no duration. Durations go by ``pace``. Tests of what
    only reads the time set it by hand: ``advance``, or ``step_s``, by which it goes on each time
    its durations are read.
    """

    def __init__(
        self,
        loop: SimulatedLoop | None = None,
        *,
        pace: Pace | None = None,
        skew_ms: int = 0,
        step_s: float = 0.0,
    ) -> None:
        self._loop = loop
        self._pace = pace or Pace()
        self._ahead_s = 0.0
        self.skew_ms = skew_ms
        self.step_s = step_s

    def monotonic(self) -> float:
        """Seconds since the simulation began, as this host counts them."""
        now_s = self._pace.local(self._true_s()) + self._ahead_s
        self._ahead_s += self.step_s
        return now_s

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this host believes."""
        return WALL_START_MS + int((self._true_s() + self._ahead_s) * 1000) + self.skew_ms

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back where negative (NTP, an operator, a leap)."""
        self.skew_ms += milliseconds

    def set_wall(self, wall_ms: int) -> None:
        """Let the wall clock show this time now, and go on from there."""
        self.jump(wall_ms - self.wall_ms())

    def advance(self, seconds: float) -> None:
        """Let this clock alone go so much ahead of the loop: no timer fires because of it."""
        assert seconds >= 0, "durations never go back"
        self._ahead_s += seconds

    def _true_s(self) -> float:
        loop = self._loop or _get_running_loop()
        return loop.now_s if isinstance(loop, SimulatedLoop) else 0.0
