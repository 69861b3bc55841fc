"""Proves that a replay keeps to its rate."""

from __future__ import annotations

import pyarrow as pa
import pytest

from geminga_simulation.event_loop.clock import SimulatedClock
from pyspark_geminga.jobs.replay import paced


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"row": list(range(rows))})


def test_rows_leave_at_their_rate_and_in_their_order() -> None:
    clock = SimulatedClock()
    rows = paced(iter([batch(250), batch(50)]), 1000, clock.monotonic, clock.advance)
    left = [(round(clock.monotonic(), 6), some.column(0).to_pylist()) for some in rows]
    assert [at for at, _ in left] == [0, 0.1, 0.2, 0.25]
    assert [len(rows) for _, rows in left] == [100, 100, 50, 50]
    assert [row for _, rows in left for row in rows] == [*range(250), *range(50)]


def test_a_rate_below_one_a_second_is_kept() -> None:
    clock = SimulatedClock()
    assert len(list(paced(iter([batch(3)]), 0.5, clock.monotonic, clock.advance))) == 3
    assert clock.monotonic() == 4


def test_a_task_that_was_held_up_does_not_catch_up() -> None:
    clock = SimulatedClock()
    rows = paced(iter([batch(30)]), 100, clock.monotonic, clock.advance)
    next(rows)
    clock.advance(60)
    next(rows)
    next(rows)
    assert clock.monotonic() == pytest.approx(60.1)
