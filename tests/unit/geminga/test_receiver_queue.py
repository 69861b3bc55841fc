"""Proves that messages go to those who wait, in order, and that no permit is lost or made up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from geminga import Closed, Message, MessageId
from geminga.receiver_queue import ReceiverQueue

EXAMPLE = Message(
    payload=b"",
    message_id=MessageId(1, 0),
    topic="t",
    producer_name="p",
    sequence_id=0,
    publish_time_ms=0,
    event_time_ms=None,
    key=None,
    ordering_key=None,
    properties={},
    redelivery_count=0,
    is_null=False,
)


@pytest.fixture
def returned() -> list[int]:
    """The permits that the queue returned."""
    return []


@pytest.fixture
def queue(returned: list[int]) -> ReceiverQueue:
    return ReceiverQueue(returned.append)


def messages(*numbers: int) -> list[Message]:
    return [replace(EXAMPLE, message_id=MessageId(1, number)) for number in numbers]


async def number(queue: ReceiverQueue) -> int:
    return (await queue.get()).message_id.entry_id


async def test_the_oldest_message_comes_first(queue: ReceiverQueue) -> None:
    queue.put(messages(0, 1))
    queue.put(messages(2))
    assert len(queue) == 3
    assert [await number(queue) for _ in range(3)] == [0, 1, 2]


async def test_the_caller_that_waits_longest_is_served_first(queue: ReceiverQueue) -> None:
    waiting = [asyncio.create_task(number(queue)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    queue.put(messages(0, 1, 2))
    assert [await waiting[0], await waiting[2]] == [0, 1]
    assert len(queue) == 1


async def test_a_message_given_to_a_caller_that_is_cancelled_is_not_lost(
    queue: ReceiverQueue, returned: list[int]
) -> None:
    waiting = asyncio.create_task(number(queue))
    await asyncio.sleep(0)
    queue.put(messages(0))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await number(queue) == 0
    assert returned == [1, -1, 1]


async def test_a_message_that_came_back_goes_to_the_next_caller(queue: ReceiverQueue) -> None:
    waiting = [asyncio.create_task(number(queue)) for _ in range(2)]
    await asyncio.sleep(0)
    queue.put(messages(0))
    waiting[0].cancel()
    assert await waiting[1] == 0


async def test_each_message_that_leaves_or_never_got_in_returns_its_permit(
    queue: ReceiverQueue, returned: list[int]
) -> None:
    queue.put(messages(0, 1), left_out=3)
    await queue.get()
    assert returned == [3, 1]
    waiting = [asyncio.create_task(number(queue)) for _ in range(3)]
    await asyncio.sleep(0)
    queue.put(messages(2, 3), left_out=1)
    assert [await task for task in waiting] == [1, 2, 3]
    assert returned == [3, 1, 1, 3]


async def test_what_is_forgotten_returns_no_permit(
    queue: ReceiverQueue, returned: list[int]
) -> None:
    queue.put(messages(0, 1, 2))
    assert queue.clear() == 3
    assert len(queue) == 0
    assert returned == []


async def test_an_ended_queue_gives_what_it_holds_and_then_the_error(queue: ReceiverQueue) -> None:
    waiting = asyncio.create_task(number(queue))
    await asyncio.sleep(0)
    queue.put(messages(0, 1))
    late = asyncio.create_task(number(queue))
    later = asyncio.create_task(number(queue))
    await asyncio.sleep(0)
    queue.end(Closed("the consumer"))
    queue.end(Closed("something else"))
    assert [await waiting, await late] == [0, 1]
    for gone in (later, asyncio.create_task(number(queue))):
        with pytest.raises(Closed, match="the consumer"):
            await gone


async def test_a_caller_that_asks_in_vain_leaves_nothing_behind(queue: ReceiverQueue) -> None:
    patient = asyncio.create_task(number(queue))
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await queue.get()
    assert len(queue._waiting) == 1
    queue.put(messages(7))
    assert await patient == 7
