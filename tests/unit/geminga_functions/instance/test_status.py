"""Proves what an instance says of itself: numbers, exceptions, metrics, within its bounds."""

from __future__ import annotations

import json

from geminga_functions.instance.status import (
    EXCEPTIONS_KEPT,
    STATUS_BYTES_MAX,
    USER_METRICS_MAX,
    Counters,
    InstanceStatus,
)
from geminga_simulation.event_loop.clock import SimulatedClock


def test_a_status_is_read_as_it_was_written() -> None:
    counters = Counters(SimulatedClock())
    counters.received = counters.processed = 3
    counters.latency_s = 0.006
    counters.user_exception(ValueError("wrong \udcff"))
    counters.system_exception(OSError("away"))
    counters.record_metric("size", 2.0)
    counters.record_metric("size", 3.0)
    status = counters.status()
    assert InstanceStatus.of(json.loads(status.to_json())) == status
    assert status.total.average_latency_ms == 2.0
    assert status.user_metrics == {"size_sum": 5.0, "size_count": 2.0}
    assert "ValueError: wrong" in status.latest_user_exceptions[0].text


def test_the_function_may_record_a_new_metric_while_a_status_is_made() -> None:
    counters = Counters(SimulatedClock())

    class Name(str):
        """A name; when a status begins to show it, another one is recorded."""

        __slots__ = ()

        def __format__(self, spec: str) -> str:
            counters.record_metric("later", 1.0)
            return super().__format__(spec)

    counters.record_metric(Name("first"), 2.0)
    assert counters.status().user_metrics == {"first_sum": 2.0, "first_count": 1.0}
    assert counters.status().user_metrics["later_sum"] == 2.0


def test_the_last_minute_is_the_one_that_is_over() -> None:
    clock = SimulatedClock()
    counters = Counters(clock)
    counters.received = 5
    assert counters.status().last_minute.received == 0
    clock.advance(60.0)
    assert counters.status().last_minute.received == 5
    counters.received = 7
    clock.advance(60.0)
    assert counters.status().last_minute.received == 2


def test_a_status_stays_small_whatever_the_code_does() -> None:
    counters = Counters(SimulatedClock())
    for number in range(1000):
        counters.user_exception(ValueError("\u4e2d" * 10_000))
        counters.system_exception(ValueError("\u4e2d" * 10_000))
        counters.record_metric(f"{number}" * 20, number)
    status = counters.status()
    assert len(status.latest_user_exceptions) == EXCEPTIONS_KEPT
    assert len(status.user_metrics) <= 2 * USER_METRICS_MAX
    assert len(status.to_json().encode()) <= STATUS_BYTES_MAX
