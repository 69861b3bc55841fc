"""The trace: every event counts, and recording is only for eyes."""

from __future__ import annotations

import asyncio
from functools import partial

from geminga_simulation.event_loop import trace as trace_module
from geminga_simulation.event_loop.trace import NUMBERS_PER_FOLD, Trace, label_of


def digest_of(numbers: list[float]) -> str:
    trace = Trace()
    for number in numbers:
        trace.append(number)
        trace.fold()
    return trace.digest()


def test_equal_events_give_equal_digests_and_one_more_changes_it() -> None:
    numbers = [number / 7 for number in range(2 * NUMBERS_PER_FOLD + 5)]
    assert digest_of(numbers) == digest_of(numbers)
    assert digest_of(numbers) != digest_of([*numbers, 0.0])
    assert digest_of(numbers) != digest_of([1.0, *numbers[1:]])


def test_the_content_of_a_note_counts() -> None:
    traces = [Trace(), Trace(), Trace()]
    traces[0].note("a>b", b"payload")
    traces[1].note("a>b", b"paYload")
    traces[2].note("b>a", b"payload")
    assert len({trace.digest() for trace in traces}) == 3


def test_asking_for_the_digest_does_not_end_the_trace() -> None:
    trace = Trace()
    first = trace.digest()
    trace.append(1.0)
    assert trace.digest() != first


def test_a_recording_has_a_line_for_each_note_up_to_its_bound() -> None:
    trace = Trace(record=True)
    trace.note("a>b", b"payload")
    assert trace.lines == ["  a>b [7 bytes]"]
    trace.lines = ["full"] * trace_module.RECORDED_LINES_MAX
    trace.note("a>b", b"payload")
    assert len(trace.lines) == trace_module.RECORDED_LINES_MAX


async def test_labels_have_no_addresses() -> None:
    async def work() -> None:
        return

    task = asyncio.get_running_loop().create_task(work(), name="named")
    assert label_of(task.get_name) == "task named"
    assert label_of(partial(digest_of, [])) == "digest_of"
    assert label_of(digest_of) == "digest_of"
    assert "0x" not in label_of(object())
    await task
