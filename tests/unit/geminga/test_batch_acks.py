"""Proves that a batch is done when each of its messages is, in whatever order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.batch_acks import BatchAcks


@given(
    size=st.integers(1, 100),
    acks=st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=150),
)
@settings(max_examples=100)
def test_a_batch_is_done_when_no_message_is_open(size: int, acks: list[tuple[int, bool]]) -> None:
    batch = BatchAcks(size)
    still_open = set(range(size))
    for index, is_cumulative in acks:
        if is_cumulative:
            still_open -= set(range(index + 1))
            is_done = batch.acknowledge_up_to(index)
        else:
            still_open.discard(index)
            is_done = batch.acknowledge(index)
        assert is_done is batch.is_done is (not still_open)
