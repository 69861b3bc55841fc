"""Proves when a client counts as alive, and what becomes of one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.config import SessionConfig
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory

# More than a connection's buffer takes.
TOO_MUCH = bytes(2 * SessionConfig().write_buffer_bytes_high)

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


async def test_a_client_that_takes_nothing_for_a_keep_alive_interval_is_given_up(
    connect: Connect, context: SessionContext
) -> None:
    stuck, slow = connect(), connect()
    for client in (stuck, slow):
        client.transport.is_stuck = True
        client.session.send(TOO_MUCH)
    await asyncio.sleep(1.5 * context.config.keepalive_s)
    slow.transport.take(1024)
    await asyncio.sleep(context.config.keepalive_s)
    assert stuck.transport.is_aborted
    assert not slow.transport.is_aborted


async def test_a_stuck_client_makes_room_for_another_at_once(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    await settle()
    client.transport.is_stuck = True
    client.session.send(TOO_MUCH)
    await settle()
    assert not await client.session.is_alive()
    assert client.transport.is_aborted


async def test_a_client_that_gives_no_sign_of_life_makes_room(
    connect: Connect, topics: TopicDirectory, settle: Settle
) -> None:
    client, other = connect(), connect()
    client.subscribe()
    await settle()
    other.subscribe()
    assert not await client.session.is_alive()
    assert client.transport.is_aborted, "what is queued for the dead must not keep the connection"
    await settle()
    assert other.heard == ["success"]
    assert len(topics.loaded) == 1


async def test_a_client_that_is_not_read_just_now_counts_as_alive(
    connect: Connect, context: SessionContext, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.is_prompt = False
    for _ in range(4):
        client.publish(*[bytes(1024 * 1024)] * 5)
    assert client.transport.is_paused
    assert await client.session.is_alive()
    ledgers.writers[0].confirm()
    assert not context.publish_buffer.paused
    assert context.publish_buffer.pending_bytes == 0


async def test_a_client_that_caught_up_in_between_is_not_given_up_when_it_is_slow_again(
    connect: Connect, context: SessionContext
) -> None:
    client = connect()
    await asyncio.sleep(1)
    for _ in range(3):
        client.transport.is_stuck = True
        client.session.send(TOO_MUCH)
        await asyncio.sleep(context.config.keepalive_s)
        client.transport.take(client.transport.unsent_bytes)
    assert not client.transport.is_aborted


async def test_a_client_that_leaves_while_it_is_asked_is_known_to_be_gone_at_once(
    connect: Connect, context: SessionContext
) -> None:
    context.liveness_check_s = 3600.0
    client = connect()
    asking = asyncio.create_task(client.session.is_alive())
    await asyncio.sleep(0)
    client.lose()
    began_s = asyncio.get_running_loop().time()
    assert not await asking
    assert asyncio.get_running_loop().time() == began_s
    assert not await client.session.is_alive()


@pytest.mark.parametrize("taken_bytes", [0, 1])
async def test_a_closed_connection_is_given_up_once_its_client_takes_nothing_any_more(
    connect: Connect, context: SessionContext, monkeypatch: pytest.MonkeyPatch, taken_bytes: int
) -> None:
    client = connect()
    await asyncio.sleep(1)
    client.transport.is_stuck = True
    client.session.send(bytes(1024))
    await asyncio.sleep(0)
    monkeypatch.setattr(client.transport, "close", lambda: None)  # it waits for the client
    client.session.close()
    for _ in range(4):
        await asyncio.sleep(context.config.keepalive_s)
        client.transport.take(taken_bytes)
    assert client.transport.is_aborted == (taken_bytes == 0)
