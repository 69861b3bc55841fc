"""Proves when a client is not read, and that it is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.back_pressure import THROTTLE_REVIEW_S
from geminga_broker.sessions.context import SessionContext

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


async def test_a_client_that_never_reads_is_not_read_either(
    connect: Connect, context: SessionContext
) -> None:
    context.config = replace(context.config, write_buffer_bytes_high=64 * 1024)
    client = connect()
    client.transport.is_stuck = True
    asked = 0
    while client.is_read():
        for _ in range(100):
            client.ask("lookupTopic", topic="t/n/topic")
            asked += 1
        assert asked < 10_000
        await asyncio.sleep(0.01)
    assert client.transport.unsent_bytes < 2 * 64 * 1024
    client.transport.take(client.transport.unsent_bytes)
    assert client.is_read()
    await asyncio.sleep(1)
    assert len(client.all_of("lookupTopicResponse")) == asked


async def test_a_client_that_publishes_too_fast_is_not_read_for_as_long_as_it_must_wait(
    connect: Connect,
) -> None:
    client = connect()
    ends_s = asyncio.get_running_loop().time() + 2.5
    client.session.throttle(lambda _: max(0.0, ends_s - asyncio.get_running_loop().time()))
    assert not client.is_read()
    await asyncio.sleep(2.4)
    assert not client.is_read()
    await asyncio.sleep(0.2)
    assert client.is_read()


async def test_a_limit_that_is_lifted_is_noticed_soon(connect: Connect) -> None:
    client = connect()
    waits_s = [1000.0]
    client.session.throttle(lambda _: waits_s[0])
    waits_s[0] = 0.0
    await asyncio.sleep(THROTTLE_REVIEW_S + 0.1)
    assert client.is_read()


async def test_unconfirmed_bytes_of_a_lost_connection_are_given_up(
    connect: Connect, context: SessionContext, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.is_prompt = False
    client.publish(b"a", b"b")
    assert context.publish_buffer.pending_bytes > 0
    client.lose()
    assert context.publish_buffer.pending_bytes == 0
    ledgers.writers[0].confirm()
    assert context.publish_buffer.pending_bytes == 0


async def test_a_session_that_ends_while_it_is_not_read_is_not_held_back_any_more(
    connect: Connect, context: SessionContext
) -> None:
    client = connect()
    client.session.throttle(lambda _: 1000.0)
    assert len(context.publish_buffer.paused) == 1
    client.session.close()
    assert not context.publish_buffer.paused
    await asyncio.sleep(2 * THROTTLE_REVIEW_S)
    assert not client.is_read()


async def test_commands_without_end_stop_the_reading_until_some_are_done(
    connect: Connect, context: SessionContext
) -> None:
    context.config = replace(context.config, commands_in_progress_max=10)
    client = connect()
    for asked in range(11):
        assert client.is_read(), asked
        client.ask("lookupTopic", topic="t/n/undecided" if asked else "t/n/topic")
    assert not client.is_read()
    await asyncio.sleep(1)
    assert client.is_read()


async def test_all_clients_that_wait_for_the_common_buffer_are_read_again_when_half_of_it_is_free(
    connect: Connect, context: SessionContext
) -> None:
    context.config = replace(context.config, publish_buffer_bytes_max=100)
    publisher, other = connect(), connect()
    publisher.session.published(101)
    other.say("pong")
    assert not other.is_read()
    publisher.session.confirmed(50)
    assert not other.is_read()
    publisher.session.confirmed(1)
    assert other.is_read()
    assert not context.publish_buffer.paused


async def test_a_session_that_has_ended_is_neither_paused_nor_looked_at_again(
    connect: Connect,
) -> None:
    client = connect()
    client.session.close()
    await asyncio.sleep(0)
    asked: list[float] = []

    def wait_s(now_s: float) -> float:
        asked.append(now_s)
        return 1000.0

    client.session.throttle(wait_s)
    assert client.is_read()
    await asyncio.sleep(10 * THROTTLE_REVIEW_S)
    assert len(asked) == 1
