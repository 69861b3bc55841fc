"""The system's clocks: one that never goes back, one that agrees with the rest of the world."""

from __future__ import annotations

import time

from geminga_runtime.clock import Clock, SystemClock


def test_monotonic_time_never_goes_back() -> None:
    clock: Clock = SystemClock()
    times = [clock.monotonic() for _ in range(1000)]
    assert times == sorted(times)


def test_wall_time_is_in_milliseconds_since_1970() -> None:
    before_ms = int(time.time() * 1000)
    assert before_ms <= SystemClock().wall_ms() <= before_ms + 60_000
