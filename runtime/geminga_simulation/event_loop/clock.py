"""A host's two clocks: a monotonic one, which follows virtual time at its own rate, and a wall
clock, which may be wrong and may jump."""

from __future__ import annotations

from asyncio.events import _get_running_loop
from dataclasses import KW_ONLY, dataclass, field

from geminga_simulation.event_loop.incarnation import Pace
from geminga_simulation.event_loop.loop import SimulatedLoop

# When every simulation begins: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000


@dataclass(slots=True, eq=False)
class SimulatedClock:
    """Implements ``geminga_runtime.clock.Clock`` for one host.

    It shows the virtual time of ``loop``; without one, that of the simulated loop that runs when it
    is read, and where none runs it stands still. The monotonic clock goes by ``pace``. Tests of
    code that only reads the time set the clock by hand: ``advance``, or ``step_s``.
    """

    loop: SimulatedLoop | None = None
    _: KW_ONLY
    pace: Pace = field(default_factory=Pace)
    # How far the wall clock is ahead of the true time, in milliseconds. Setting it is what NTP and
    # operators do: it changes no duration.
    skew_ms: int = 0
    # How far reading the monotonic clock sets it ahead.
    step_s: float = 0.0
    # What ``advance`` and ``step_s`` have added to both clocks, in seconds.
    ahead_s: float = field(default=0.0, init=False)

    def monotonic(self) -> float:
        """Seconds since the simulation began, as this host counts them."""
        # Never less than at the last call: paces are positive, and ``ahead_s`` only grows.
        now_s = self.pace.local(self._true_s()) + self.ahead_s
        self.ahead_s += self.step_s
        return now_s

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this host believes."""
        # By true time, not by ``pace``: as if NTP kept its rate.
        return WALL_START_MS + int((self._true_s() + self.ahead_s) * 1000) + self.skew_ms

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock to this time; it goes on from there."""
        self.skew_ms += wall_ms - self.wall_ms()

    def advance(self, seconds: float) -> None:
        """Set this clock alone ahead of the loop's time: no timer fires because of it."""
        assert seconds >= 0, "durations never go back"
        self.ahead_s += seconds

    def _true_s(self) -> float:
        loop = self.loop or _get_running_loop()
        return loop.now_s if isinstance(loop, SimulatedLoop) else 0.0
