"""The simulation's event loop for unit tests: hours pass at once; and a ``Clock`` of it."""

from __future__ import annotations

import asyncio

from geminga_simulation.clock import WALL_START_MS
from geminga_simulation.loop import SimulatedLoop

VirtualTimeLoop = SimulatedLoop


class LoopClock:
    """The running loop's virtual time, for what is made before there is a loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.monotonic() * 1000)
