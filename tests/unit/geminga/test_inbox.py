"""Proves that messages go to those who wait, in order, and that no permit is lost or made up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from geminga import Message, MessageId
from geminga.errors import Closed
from geminga.inbox import Inbox

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


def messages(*numbers: int) -> list[Message]:
    return [replace(EXAMPLE, message_id=MessageId(1, number)) for number in numbers]


async def number(inbox: Inbox) -> int:
    return (await inbox.get()).message_id.entry_id


async def test_the_oldest_message_comes_first() -> None:
    inbox = Inbox(10, lambda _: None)
    inbox.put(messages(0, 1))
    inbox.put(messages(2))
    assert len(inbox) == 3
    assert [await number(inbox) for _ in range(3)] == [0, 1, 2]


async def test_who_waits_longest_is_served_first() -> None:
    inbox = Inbox(10, lambda _: None)
    waiting = [asyncio.create_task(number(inbox)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    inbox.put(messages(0, 1, 2))
    assert [await waiting[0], await waiting[2]] == [0, 1]
    assert len(inbox) == 1


async def test_a_message_given_to_one_who_was_told_to_stop_is_not_lost() -> None:
    granted: list[int] = []
    inbox = Inbox(1, granted.append)
    waiting = asyncio.create_task(number(inbox))
    await asyncio.sleep(0)
    inbox.put(messages(0))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await number(inbox) == 0
    assert sum(granted) == 1


async def test_a_message_that_came_back_goes_to_the_next_who_waits() -> None:
    inbox = Inbox(10, lambda _: None)
    waiting = [asyncio.create_task(number(inbox)) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.put(messages(0))
    waiting[0].cancel()
    assert await waiting[1] == 0


async def test_permits_are_granted_by_half_queues() -> None:
    granted: list[int] = []
    inbox = Inbox(4, granted.append)
    inbox.begin_anew()
    assert granted == [4]
    inbox.put(messages(0, 1), left_out=1)
    await inbox.get()
    assert granted == [4, 2]
    inbox.put([], left_out=5)
    assert granted == [4, 2, 5]
    inbox.drop_all()
    await asyncio.sleep(0)
    inbox.put(messages(2))
    await inbox.get()
    assert granted == [4, 2, 5, 2]


async def test_beginning_anew_forgets_what_is_held() -> None:
    granted: list[int] = []
    inbox = Inbox(4, granted.append)
    inbox.put(messages(0, 1, 2), left_out=1)
    inbox.begin_anew()
    assert len(inbox) == 0
    assert granted == [4]
    inbox.put([], left_out=1)
    assert granted == [4]


async def test_an_ended_inbox_gives_what_it_holds_and_then_the_error() -> None:
    inbox = Inbox(10, lambda _: None)
    waiting = asyncio.create_task(number(inbox))
    await asyncio.sleep(0)
    inbox.put(messages(0, 1))
    late = asyncio.create_task(number(inbox))
    later = asyncio.create_task(number(inbox))
    await asyncio.sleep(0)
    inbox.end(Closed("the consumer"))
    inbox.end(Closed("somebody else"))
    assert [await waiting, await late] == [0, 1]
    for gone in (later, asyncio.create_task(number(inbox))):
        with pytest.raises(Closed, match="the consumer"):
            await gone


async def test_who_asked_in_vain_leaves_nothing_behind() -> None:
    inbox = Inbox(10, lambda _: None)
    patient = asyncio.create_task(number(inbox))
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await inbox.get()
    assert len(inbox._waiting) == 1
    inbox.put(messages(7))
    assert await patient == 7
