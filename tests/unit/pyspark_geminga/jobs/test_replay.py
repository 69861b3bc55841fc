"""Proves that a replay keeps to its rate."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_geminga.jobs.replay import paced


class Time:
    """A clock that waiting moves on; ``waits`` are how long each was."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"row": list(range(rows))})


def test_rows_leave_at_their_rate_and_in_their_order() -> None:
    time = Time()
    rows = paced(iter([batch(250), batch(50)]), 1000, time.monotonic, time.wait)
    left = [(round(time.now_s - 100, 6), some.column(0).to_pylist()) for some in rows]
    assert [at for at, _ in left] == [0, 0.1, 0.2, 0.25]
    assert [len(rows) for _, rows in left] == [100, 100, 50, 50]
    assert [row for _, rows in left for row in rows] == [*range(250), *range(50)]


def test_a_rate_below_one_a_second_is_kept() -> None:
    time = Time()
    assert len(list(paced(iter([batch(3)]), 0.5, time.monotonic, time.wait))) == 3
    assert time.waits == [2, 2]


def test_a_task_that_was_held_up_does_not_catch_up() -> None:
    time = Time()
    rows = paced(iter([batch(30)]), 100, time.monotonic, time.wait)
    next(rows)
    time.now_s += 60
    next(rows)
    next(rows)
    assert time.waits == pytest.approx([0.1])
