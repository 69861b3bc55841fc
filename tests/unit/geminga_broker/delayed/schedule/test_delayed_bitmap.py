"""Proves that the set of held entries does what a plain set does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.delayed.schedule.delayed_bitmap import DelayedBitmap
from geminga_broker.managed_ledger.positions import Position

POSITIONS = st.tuples(st.integers(1, 3), st.integers(0, 40))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "release", "bits", "pass"]), POSITIONS))


@given(STEPS)
def test_held_is_a_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    held, model = DelayedBitmap(), set[tuple[int, int]]()
    mark = (0, 0)
    for what, position in steps:
        if what == "pass":
            mark = max(mark, position)
            held.pass_by(Position(*mark))
            model = {each for each in model if each > mark}
        elif position > mark:
            if what == "add":
                assert held.add(*position) == (position not in model)
                model.add(position)
            elif what == "release":
                assert held.release(*position) == (position in model)
                model.discard(position)
            elif position[0] != mark[0]:
                held.add_bits(position[0], 1 << position[1] | 1)
                model |= {position, (position[0], 0)}
        assert len(held) == len(model)
        assert all(each in held for each in model)
    runs = [(ledger, each) for ledger, a, b in held.runs(1, 3) for each in range(a, b + 1)]
    assert runs == sorted(model)
    assert bool(list(held.runs(2, 2))) == any(each[0] == 2 for each in model)
    for ledger_id in (1, 2, 3):
        end = held.run_end(ledger_id, 5)
        assert (ledger_id, end) not in model
        assert all((ledger_id, each) in model for each in range(5, end))
