"""The CPU of a process is that of the last period, as a share of the one core that it can use."""

from __future__ import annotations

import pytest

from geminga_broker.load_manager import process_usage
from geminga_broker.load_manager.process_usage import ProcessUsage
from geminga_simulation.event_loop.clock import SimulatedClock


def test_the_cpu_is_that_of_the_last_period(monkeypatch: pytest.MonkeyPatch) -> None:
    used_s = 100.0
    monkeypatch.setattr(process_usage, "_cpu_s", lambda: used_s)
    clock = SimulatedClock()
    usage = ProcessUsage(clock)
    assert (usage.cpu.usage, usage.cpu.limit) == (0.0, 100.0)
    for spent_s, percent in ((15.0, 25.0), (0.0, 0.0)):
        used_s += spent_s
        clock.advance(60)
        usage.renew()
        assert usage.cpu.usage == pytest.approx(percent)


def test_memory_is_a_share_of_the_machines() -> None:
    memory = ProcessUsage(SimulatedClock()).memory
    assert 10 < memory.usage < memory.limit
