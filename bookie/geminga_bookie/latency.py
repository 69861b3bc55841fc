"""How long things took, for summaries: recorded for many at once, asked for rarely."""

from __future__ import annotations

from math import log2

from geminga_runtime.clock import Clock

# Buckets grow by a quarter of a doubling (19 %) from one microsecond to more than an hour.
BUCKETS_PER_DOUBLING = 4
BUCKET_COUNT = 128
FIRST_BUCKET_S = 1e-6
# Quantiles speak of the last one to two windows, so that an old peak is forgotten.
WINDOW_S = 60.0


class Latency:
    """Seconds that operations took: their number, their sum, and quantiles of late."""

    __slots__ = ("_clock", "_current", "_previous", "_window_ends_s", "count", "sum_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._current = [0] * BUCKET_COUNT
        self._previous = [0] * BUCKET_COUNT
        self._window_ends_s = clock.monotonic() + WINDOW_S
        self.count = 0
        self.sum_s = 0.0

    def record(self, seconds: float, count: int) -> None:
        """``count`` operations took ``seconds`` each."""
        self.count += count
        self.sum_s += seconds * count
        doublings = log2(seconds / FIRST_BUCKET_S) if seconds > FIRST_BUCKET_S else 0.0
        self._current[min(int(doublings * BUCKETS_PER_DOUBLING), BUCKET_COUNT - 1)] += count

    def quantiles(self, wanted: tuple[float, ...]) -> list[float]:
        """Seconds within which each share of ``wanted`` (rising, 0 to 1) was done; 0 for none."""
        now_s = self._clock.monotonic()
        counts = [old + new for old, new in zip(self._previous, self._current, strict=True)]
        if now_s >= self._window_ends_s:
            self._previous = self._current
            self._current = [0] * BUCKET_COUNT
            self._window_ends_s = now_s + WINDOW_S
        total = sum(counts)
        found: list[float] = []
        passed = 0
        bucket = -1
        for share in wanted:
            while total and passed < share * total and bucket < BUCKET_COUNT - 1:
                bucket += 1
                passed += counts[bucket]
            found.append(_upper_bound_s(bucket) if bucket >= 0 else 0.0)
        return found


def _upper_bound_s(bucket: int) -> float:
    return float(FIRST_BUCKET_S * 2 ** ((bucket + 1) / BUCKETS_PER_DOUBLING))
