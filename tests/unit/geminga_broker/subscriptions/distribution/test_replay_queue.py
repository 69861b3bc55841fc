"""Proves that a replay queue is what a sorted list would be, however entries come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue

positions = st.tuples(st.integers(1, 2), st.integers(0, 200))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("one"), st.lists(positions, min_size=1, max_size=1)),
        st.tuples(st.just("all"), st.lists(positions, max_size=150, unique=True)),
        st.tuples(st.just("take"), st.lists(positions, max_size=120)),
        st.tuples(st.just("upto"), st.lists(positions, min_size=1, max_size=1)),
        st.tuples(st.just("discard"), st.lists(positions, min_size=1, max_size=1)),
    ),
    max_size=12,
)


@given(steps)
def test_the_lowest_come_first_and_none_twice(taken: list[tuple[str, list[EntryId]]]) -> None:
    queue, model = ReplayQueue(), list[EntryId]()
    for kind, several in taken:
        if kind == "one":
            queue.add(several[0])
            model = sorted({*model, *several})
        elif kind == "all":
            fresh = [each for each in several if each not in model]
            queue.add_all(fresh)
            model = sorted([*model, *fresh])
        elif kind == "take":
            count = min(len(several), len(model))
            queue.take(count)
            del model[:count]
        elif kind == "upto":
            queue.discard_upto(several[0])
            model = [each for each in model if each > several[0]]
        else:
            assert queue.discard(several[0]) == (several[0] in model)
            model = [each for each in model if each != several[0]]
        assert list(queue) == model
        assert len(queue) == len(model)
        if model:
            assert queue.first == model[0]
            near = [each for each in model[:5] if (model[0][0], model[0][1] + 9) > each]
            assert queue.near_first(5, 9) == near
