"""Proves that messages go to callers in order, lanes in turns, and that none is lost with one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga.fake_broker import metadata

from geminga import Closed, Message
from geminga.consumers.receiver_queue import Lane, ReceiverQueue
from geminga.messages import Delivery

SECOND_S = 1.0


class Lanes:
    """A queue with two lanes, and the numbers of the messages that left it."""

    def __init__(self) -> None:
        self.queue = ReceiverQueue()
        self.taken: list[int] = []
        self.one, self.other = Lane(self._taken), Lane(self._taken)

    def _taken(self, messages: Sequence[Message[Any]]) -> None:
        self.taken += [message.position[1] for message in messages]

    def put(self, *numbers: int, lane: Lane | None = None) -> None:
        messages = [
            Message[bytes](b"%d" % number, Delivery("t", (1, number), -1, metadata()))
            for number in numbers
        ]
        self.queue.put(lane or self.one, messages)

    async def get(self) -> int:
        message = self.queue.get_ready() or await self.queue.get()  # as consumers and readers do
        return message.position[1]

    async def get_many(self, messages: int, data_bytes: int = 1000) -> list[int]:
        got = await self.queue.get_many(messages, data_bytes, SECOND_S)
        return [message.position[1] for message in got]


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


async def waiting(*works: Any) -> list[asyncio.Task[Any]]:
    """Tasks that have begun to wait, in this order."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(0)
    return tasks


async def test_the_oldest_message_comes_first(lanes: Lanes) -> None:
    lanes.put(0, 1)
    lanes.put(2)
    assert len(lanes.queue) == 3
    assert [await lanes.get() for _ in range(3)] == [0, 1, 2]
    assert lanes.taken == [0, 1, 2]


async def test_lanes_take_turns(lanes: Lanes) -> None:
    lanes.put(0, 1, 2, 3)
    lanes.put(10, 11, lane=lanes.other)
    assert [await lanes.get() for _ in range(6)] == [0, 10, 1, 11, 2, 3]


async def test_the_caller_that_waits_longest_is_served_first(lanes: Lanes) -> None:
    first, second, third = await waiting(*[lanes.get() for _ in range(3)])
    second.cancel()
    await asyncio.sleep(0)
    lanes.put(0, 1, 2)
    assert [await first, await third] == [0, 1]
    assert len(lanes.queue) == 1


async def test_a_caller_that_was_woken_gets_its_message_before_a_later_caller(
    lanes: Lanes,
) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0)
    (second,) = await waiting(lanes.get())
    assert await first == 0
    assert not second.done()
    lanes.put(1)
    assert await second == 1


async def test_a_message_is_not_lost_with_a_caller_cancelled_as_it_came(lanes: Lanes) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert lanes.taken == []
    assert await lanes.get() == 0


async def test_the_message_of_a_cancelled_caller_is_the_next_ones(lanes: Lanes) -> None:
    first, second = await waiting(lanes.get(), lanes.get())
    lanes.put(0)
    first.cancel()
    assert await second == 0


async def test_a_caller_woken_for_dropped_messages_waits_again(lanes: Lanes) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0, 1)
    assert lanes.queue.clear(lanes.one) == 2
    assert len(lanes.queue) == 0
    await asyncio.sleep(0)
    lanes.put(2, lane=lanes.other)
    assert await first == 2
    assert lanes.taken == [2]


async def test_an_ended_queue_gives_what_it_holds_and_then_the_error(lanes: Lanes) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0, 1)
    second, third = await waiting(lanes.get(), lanes.get())
    lanes.queue.end(Closed("the consumer"))
    lanes.queue.end(Closed("something else"))
    assert sorted([await first, await second]) == [0, 1]
    for gone in (third, asyncio.create_task(lanes.get())):
        with pytest.raises(Closed, match="the consumer"):
            await gone
    with pytest.raises(Closed):
        await lanes.get_many(1)


async def test_a_caller_cancelled_at_the_end_leaves_its_message(lanes: Lanes) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0)
    lanes.queue.end(Closed("the consumer"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await lanes.get() == 0


async def test_a_receive_that_times_out_leaves_nothing_behind(lanes: Lanes) -> None:
    (patient,) = await waiting(lanes.get())
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await lanes.queue.get()
        assert await lanes.get_many(1) == []
    assert len(lanes.queue._waiting) == 1
    assert lanes.queue._batch_receives == []
    lanes.put(7)
    assert await patient == 7


async def test_the_loop_turns_while_a_full_queue_is_emptied(lanes: Lanes) -> None:
    lanes.put(*range(1000))
    turns: list[int] = []
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: turns.append(len(lanes.taken)))
    for number in range(1000):
        assert await lanes.get() == number
    assert turns[0] < 100
    lanes.put(*range(200))
    loop.call_soon(lambda: turns.append(len(lanes.queue)))
    await lanes.get_many(100)
    assert turns[1] == 200


async def test_a_message_that_a_caller_was_woken_for_is_not_ready_for_another(
    lanes: Lanes,
) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0)
    assert lanes.queue.get_ready() is None
    assert await first == 0


# ---- several at a time


async def test_a_batch_receive_ends_as_soon_as_there_are_enough(lanes: Lanes) -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    (gathering,) = await waiting(lanes.get_many(3))
    lanes.put(0, 1)
    await asyncio.sleep(SECOND_S / 2)
    assert not gathering.done()
    lanes.put(2, 3)
    assert await gathering == [0, 1, 2]
    assert loop.time() - start_s < SECOND_S


async def test_a_batch_receive_ends_with_enough_bytes(lanes: Lanes) -> None:
    lanes.put(100, 200, 300)  # of three bytes each
    assert await lanes.get_many(10, 6) == [100, 200]
    lanes.put(400)
    assert await lanes.get_many(10, 2) == [300]


async def test_a_batch_receive_ends_in_time_with_the_messages_there_are(lanes: Lanes) -> None:
    assert await lanes.get_many(3) == []
    lanes.put(0)
    assert await lanes.get_many(3) == [0]


@given(
    runs=st.lists(st.lists(st.sampled_from([1, 20, 300]), max_size=5), min_size=3, max_size=3),
    messages_max=st.integers(1, 8),
    data_bytes_max=st.integers(0, 12),
)
@settings(max_examples=300)
async def test_a_batch_receive_gives_what_single_receives_would_give(
    runs: list[list[int]], messages_max: int, data_bytes_max: int
) -> None:
    lanes, one_by_one = Lanes(), Lanes()
    for each in (lanes, one_by_one):
        for run, lane in zip(runs, (each.one, each.other, each.one), strict=True):
            each.put(*run, lane=lane)
    expected = [await one_by_one.get() for _ in range(sum(map(len, runs)))]
    got: list[int] = []
    while len(got) < len(expected):
        some = await lanes.get_many(messages_max, data_bytes_max)
        assert 1 <= len(some) <= messages_max
        if len(some) > 1:
            assert sum(len(str(number)) for number in some) <= data_bytes_max
        got += some
        rest = expected[len(got) :]
        if rest and len(some) < messages_max:
            assert sum(len(str(number)) for number in (*some, rest[0])) > data_bytes_max
    assert got == expected == lanes.taken


async def test_batch_receives_that_is_cancelled_takes_nothing(lanes: Lanes) -> None:
    (gathering,) = await waiting(lanes.get_many(2))
    lanes.put(0, 1)
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    assert lanes.taken == []
    assert await lanes.get_many(2) == [0, 1]


async def test_batch_receives_leaves_the_messages_that_others_were_woken_for(lanes: Lanes) -> None:
    (first,) = await waiting(lanes.get())
    lanes.put(0, 1)
    assert len(await lanes.get_many(2)) == 1
    await first
    assert sorted(lanes.taken) == [0, 1]
