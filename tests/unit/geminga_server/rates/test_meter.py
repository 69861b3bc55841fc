"""Proves that rates are what grew, per second."""

from __future__ import annotations

from geminga_server.metrics import Meter


def test_a_rate_is_growth_over_time() -> None:
    meter = Meter(100.0, 0, 50)
    meter.tick(110.0, 20, 50)
    assert meter.rates == (2.0, 0.0)
    meter.tick(120.0, 20, 60)
    assert meter.rates == (0.0, 1.0)


def test_what_stands_still_has_no_rate() -> None:
    meter = Meter(100.0, 0, 50)
    meter.tick(110.0, 20, 60)
    meter.tick(120.0, 20, 60)
    assert meter.rates == (0.0, 0.0)
    assert meter.elapsed_s(121.0) == 1.0
    meter.tick(130.0, 30, 60)
    assert meter.rates == (1.0, 0.0)


def test_no_time_gives_no_new_rate() -> None:
    meter = Meter(100.0, 0)
    meter.tick(100.0, 5)
    assert meter.rates == (0.0,)
