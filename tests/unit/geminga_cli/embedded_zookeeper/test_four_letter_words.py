"""Proves how ZooKeeper is asked, against servers that answer well, badly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from geminga_cli.embedded_zookeeper import four_letter_words
from geminga_cli.embedded_zookeeper.four_letter_words import ask, wait_until_ready
from geminga_cli.ports import ReservedPort
from geminga_runtime.clock import SystemClock

HOST = "127.0.0.1"
Answer = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncGenerator[int, None]:
    """A server that answers each word once; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await answer(await reader.readexactly(4)))
        writer.close()

    listening = await asyncio.start_server(serve, HOST, 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_the_whole_answer_is_read() -> None:
    async def long(word: bytes) -> bytes:
        return word * 100_000

    async with server(long) as port:
        assert await ask(HOST, port, "mntr") == b"mntr" * 100_000


async def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(four_letter_words, "ANSWER_BYTES_MAX", 10)

    async def long(_word: bytes) -> bytes:
        return b"x" * 11

    async with server(long) as port:
        with pytest.raises(OSError, match="longer than 10 bytes"):
            await ask(HOST, port, "mntr")


async def test_a_server_that_forgets_us_is_asked_again() -> None:
    """As ZooKeeper does with those who come too early."""
    asked = 0
    is_over = asyncio.Event()

    async def forget_the_first(_word: bytes) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 1:
            await is_over.wait()
        return b"Zookeeper version: 3.9.5\n"

    async with server(forget_the_first) as port:
        assert await wait_until_ready(HOST, port, SystemClock(), timeout_s=60)
        is_over.set()


async def test_a_silent_server_is_not_waited_for() -> None:
    is_over = asyncio.Event()

    async def silent(_word: bytes) -> bytes:
        await is_over.wait()
        return b""

    async with server(silent) as port:
        with pytest.raises(TimeoutError):
            await ask(HOST, port, "srvr", timeout_s=0.01)
        is_over.set()


async def test_ready_means_that_it_says_its_version() -> None:
    answers = [b"This ZooKeeper instance is not currently serving requests\n", b""]

    async def loading_then_ready(_word: bytes) -> bytes:
        return answers.pop(0) if answers else b"Zookeeper version: 3.9.5\n"

    async with server(loading_then_ready) as port:
        assert await wait_until_ready(HOST, port, SystemClock(), timeout_s=60)
        assert answers == []


async def test_waiting_ends_at_its_time_limit_where_no_server_starts() -> None:
    with ReservedPort(HOST, 0) as reserved:
        assert not await wait_until_ready(HOST, reserved.port, SystemClock(), timeout_s=0.02)
