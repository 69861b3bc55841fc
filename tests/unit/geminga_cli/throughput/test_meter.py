"""Proves what the figures of a load are, for people and for programs."""

from __future__ import annotations

import json

from geminga_cli.throughput.meter import Meter, show_figures


def test_figures_are_of_the_time_after_the_warm_up() -> None:
    meter = Meter(10.0)
    meter.add(9.9, 5.0, 1_000_000)
    for _ in range(4):
        meter.add(11.0, 0.1, 1_000_000)
    summary = meter.whole.summary(12.0)
    assert (summary["messages"], summary["seconds"]) == (4, 2.0)
    assert (summary["messagesPerSecond"], summary["megabytesPerSecond"]) == (2.0, 2.0)
    assert summary["latencyMs"] == dict.fromkeys(
        ("mean", "p50", "p95", "p99", "p99.9", "max"), 100.0
    )


def test_a_period_has_its_own_figures() -> None:
    meter = Meter(0.0)
    meter.add(1.0, 0.1, 1)
    assert meter.end_period(2.0)["messages"] == 1
    meter.fail()
    period = meter.end_period(4.0)
    assert (period["messages"], period["failed"], period["seconds"]) == (0, 1, 2.0)
    assert (meter.whole.messages, meter.whole.failed) == (1, 1)


def test_without_messages_there_are_no_percentiles() -> None:
    summary = Meter(0.0).whole.summary(0.0)
    assert summary["latencyMs"]["p99"] is None
    assert "NaN" not in json.dumps(summary)
    assert "p99 -" in show_figures(summary)


def test_people_get_a_line() -> None:
    meter = Meter(0.0)
    meter.add(1.0, 0.002, 500_000)
    meter.fail()
    assert show_figures(meter.whole.summary(2.0)) == (
        "1 messages in 2.0 s  0.5 msg/s  0.250 MB/s  latency in ms: mean 2.000, p50 2.000, "
        "p95 2.000, p99 2.000, p99.9 2.000, max 2.000  failed: 1"
    )
