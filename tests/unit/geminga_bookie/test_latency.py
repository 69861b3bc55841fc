"""Latencies are counted, summed, and their quantiles are right within a bucket."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_bookie.latency import WINDOW_S, Latency


class HandClock:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


def test_counts_and_sums_are_exact() -> None:
    latency = Latency(HandClock())
    latency.record(0.5, 2)
    latency.record(0.25, 4)
    assert (latency.count, latency.sum_s) == (6, 2.0)


@given(st.lists(st.floats(2e-6, 100), min_size=1), st.floats(0.01, 1))
@settings(max_examples=100)
def test_a_quantile_is_at_most_a_bucket_above_the_truth(seconds: list[float], share: float) -> None:
    latency = Latency(HandClock())
    for one in seconds:
        latency.record(one, 1)
    truth = sorted(seconds)[max(0, -int(-share * len(seconds) // 1) - 1)]
    (found,) = latency.quantiles((share,))
    assert truth * 0.999 <= found <= truth * 1.2


def test_quantiles_forget_what_is_two_windows_old() -> None:
    clock = HandClock()
    latency = Latency(clock)
    latency.record(10, 1)
    clock.now_s += WINDOW_S
    assert latency.quantiles((0.5,))[0] > 9
    latency.record(0.001, 1)
    clock.now_s += WINDOW_S
    assert latency.quantiles((1.0,))[0] > 9
    assert latency.quantiles((1.0,))[0] < 0.0013
    assert latency.count == 2


def test_nothing_has_no_quantiles_and_extremes_have_a_bucket() -> None:
    latency = Latency(HandClock())
    assert latency.quantiles((0.5, 0.99)) == [0, 0]
    latency.record(0, 1)
    latency.record(1e9, 1)
    assert latency.quantiles((0.1,))[0] < 2e-6
    assert latency.quantiles((1.0,))[0] > 1000
