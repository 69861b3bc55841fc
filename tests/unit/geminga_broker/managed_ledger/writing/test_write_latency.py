"""Proves that every entry's way to the bookies and back is counted, run by run."""

from __future__ import annotations

from geminga_broker.managed_ledger.writing.write_latency import WriteLatency
from geminga_server.metrics import Durations


def test_entries_are_counted_with_the_time_of_the_run_they_came_in() -> None:
    of_broker = Durations()
    latency = WriteLatency(of_broker)
    latency.taken.append((10.0, 3))
    latency.taken.append((10.009, 2))
    latency.confirmed(4, 10.010)  # three took 10 ms, one took 1 ms
    shown = latency.renew()
    assert shown.count == 4
    assert shown.counts[shown.counts.index(3)] == 3
    assert round(shown.sum) == 31
    assert of_broker.count == 4
    latency.confirmed(1, 10.509)
    assert latency.renew().counts[-2] == 1, "half a second is below a second"


def test_entries_that_were_given_up_are_not_counted() -> None:
    latency = WriteLatency(Durations())
    latency.taken.append((10.0, 3))
    latency.taken.clear()
    latency.confirmed(3, 11.0)
    latency.taken.append((12.0, 1))
    latency.confirmed(1, 12.0)
    assert latency.renew().count == 1


def test_a_period_without_messages_shows_none() -> None:
    latency = WriteLatency(Durations())
    latency.taken.append((10.0, 1))
    latency.confirmed(1, 10.0)
    assert latency.renew().count == 1
    assert latency.renew().count == 0
