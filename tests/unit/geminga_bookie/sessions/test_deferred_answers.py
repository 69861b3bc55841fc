"""Answers are made in order, one at a time, and only while the client takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from geminga_bookie.sessions.deferred_answers import WRITE_BYTES, AnswerQueue
from geminga_runtime.service import Service


class Client:
    """Takes the answers of a queue of four."""

    def __init__(self, service: Service) -> None:
        self.writes: list[list[bytes]] = []
        self.drained = 0
        self.queue = AnswerQueue(
            service.spawn,
            name="answers",
            queued_max=4,
            write=self.writes.append,
            on_drained=self._drain,
        )

    def _drain(self) -> None:
        self.drained += 1

    def push(self, *answers: bytes) -> None:
        for answer in answers:
            self.queue.push(partial(self._make, answer))

    async def _make(self, answer: bytes) -> Sequence[bytes]:
        await asyncio.sleep(1)
        return (answer,) if answer else ()


@asynccontextmanager
async def serving() -> AsyncGenerator[Client, None]:
    async with Service() as service:
        yield Client(service)


async def test_answers_come_in_order_with_one_write() -> None:
    async with serving() as client:
        client.push(b"one", b"", b"two")
        was_full = client.queue.is_full
        client.push(b"three")
        assert (was_full, client.queue.is_full) == (False, True)
        await asyncio.sleep(5)
        assert client.writes == [[b"one", b"two", b"three"]]
        assert client.drained == 1


async def test_large_answers_come_one_by_one() -> None:
    async with serving() as client:
        client.push(bytes(WRITE_BYTES), b"two")
        await asyncio.sleep(5)
        assert client.writes == [[bytes(WRITE_BYTES)], [b"two"]]


async def test_no_answers_are_made_for_a_client_that_takes_none() -> None:
    async with serving() as client:
        client.queue.can_write.clear()
        client.push(b"one")
        await asyncio.sleep(5)
        assert client.writes == []
        client.queue.can_write.set()
        await asyncio.sleep(5)
        assert client.writes == [[b"one"]]


async def test_no_answers_are_made_for_a_client_that_is_gone() -> None:
    async with serving() as client:
        client.push(b"one", b"two")
        client.queue.close()
        client.push(b"three")
        await asyncio.sleep(5)
        assert client.writes == []
