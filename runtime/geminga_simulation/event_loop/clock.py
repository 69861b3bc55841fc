"""A host's two clocks: a monotonic one, which follows virtual time at its own rate, and a wall
clock, which may be wrong and may jump."""

from __future__ import annotations

from asyncio.events import _get_running_loop

from geminga_simulation.event_loop.incarnation import Pace
from geminga_simulation.event_loop.loop import SimulatedLoop

# When every simulation begins: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000


class SimulatedClock:
    """Implements ``geminga_runtime.clock.Clock`` for one host.

    It shows the virtual time of ``loop``; without one, that of the simulated loop that runs when it
    is read, and where none runs it stands still. The monotonic clock goes by ``pace``. ``skew_ms``
    is how far the wall clock is from the true time; ``jump`` changes it and no duration. Tests of
    code that only reads the time set the clock by hand: ``advance``, or ``step_s``, by which the
    monotonic clock goes on each time it is read.
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
        # What ``advance`` and ``step_s`` have added to both clocks, in seconds.
        self._ahead_s = 0.0
        # How far the wall clock is ahead of the true time.
        self.skew_ms = skew_ms
        # How far reading the monotonic clock sets it ahead.
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
        """Set the wall clock forward, or back where negative, as NTP and operators do."""
        self.skew_ms += milliseconds

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock to this time; it goes on from there."""
        self.jump(wall_ms - self.wall_ms())

    def advance(self, seconds: float) -> None:
        """Set this clock alone ahead of the loop's time: no timer fires because of it."""
        assert seconds >= 0, "durations never go back"
        self._ahead_s += seconds

    def _true_s(self) -> float:
        loop = self._loop or _get_running_loop()
        return loop.now_s if isinstance(loop, SimulatedLoop) else 0.0
