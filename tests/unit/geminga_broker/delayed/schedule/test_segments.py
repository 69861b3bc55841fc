"""Proves that buckets are cut as upstream cuts them: by number and by time."""

from __future__ import annotations

from geminga_broker.delayed.schedule.segments import cut, summary_of
from geminga_broker.policies.delayed import DelayedConfig

CONFIG = DelayedConfig(segment_messages_max=3, segment_step_ms=100)


def test_a_segment_ends_with_its_number_or_its_time() -> None:
    messages = [(at, 1, number) for number, at in enumerate([0, 1, 2, 3, 102, 103, 203])]
    segments = [each for each in cut([messages[:2], messages[2:]], CONFIG) if each]
    assert [[at for at, _, _ in each] for each in segments] == [[0, 1, 2], [3, 102], [103], [203]]


def test_nothing_is_cut_of_nothing() -> None:
    assert not any(cut([], CONFIG))


def test_a_summary_says_when_and_which() -> None:
    summary = summary_of([(10, 7, 3), (20, 8, 0), (30, 7, 70)])
    assert (summary.due_first_ms, summary.due_last_ms) == (10, 30)
    assert summary.entries == {7: 1 << 3 | 1 << 70, 8: 1}
