"""Proves what a connection takes, refuses, and leaves behind when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.magnetar_broker.log.stand_ins import MemoryLedgers
from tests.unit.magnetar_broker.sessions.stand_ins import TOPIC, FrameClient, command_frame

from magnetar_broker.sessions.context import SessionContext
from magnetar_broker.topics.directory import TopicDirectory
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.topic_names import TopicName

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


async def test_the_first_command_must_be_connect(context: SessionContext, settle: Settle) -> None:
    client = FrameClient(context)
    client.say("ping")
    await settle()
    assert client.transport.is_closing()
    assert not context.connections


async def test_connect_is_answered_with_what_the_broker_can(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    await settle()
    ((name, connected),) = client.answers
    assert name == "connected"
    assert connected.protocol_version == 21
    assert connected.max_message_size == 5 * 1024 * 1024


async def test_a_ping_is_answered(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.say("ping")
    await settle()
    assert client.heard == ["pong"]


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\x09", b"\0\0\0\6\0\0\0\2\x08\x06", b"\0\0\0\0"],
)
async def test_garbage_closes_the_connection(
    connect: Connect, settle: Settle, garbage: bytes
) -> None:
    client = connect()
    client.connection.data_received(garbage)
    await settle()
    assert client.transport.is_closing()


async def test_a_command_that_is_not_served_is_refused(connect: Connect, settle: Settle) -> None:
    client = connect()
    request_id = client.ask("newTxn")
    await settle()
    assert not client.transport.is_closing()
    (name, answer) = client.answers[-1]
    assert name in ("error", "newTxnResponse")
    assert answer.request_id == request_id


async def test_commands_of_a_read_are_handled_in_order(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.connection.data_received(
        command_frame("subscribe", **_subscribing(1))
        + command_frame("close_consumer", **_ending(2))
    )
    await settle()
    assert client.heard == ["success", "success"]
    assert [each.request_id for each in client.all_of("success")] == [1, 2]


def _subscribing(request_id: int) -> dict[str, object]:
    return {
        "topic": "t/n/topic",
        "subscription": "sub",
        "subType": api.CommandSubscribe.Exclusive,
        "consumer_id": 1,
        "request_id": request_id,
    }


def _ending(request_id: int) -> dict[str, object]:
    return {"consumer_id": 1, "request_id": request_id}


@pytest.mark.parametrize("turns", range(25))
async def test_what_was_under_way_for_a_lost_connection_leaves_nothing_behind(
    connect: Connect, settle: Settle, topics: TopicDirectory, turns: int
) -> None:
    topic = await topics.get(TopicName.parse(TOPIC), create=True)
    client = connect()
    client.subscribe()
    client.ask("close_consumer", consumer_id=1)
    client.subscribe()
    client.ask("getLastMessageId", consumer_id=1)
    client.open_producer(producer_name="p", initial_subscription_name="first")
    client.open_producer(producer_name="p", epoch=1)
    for _ in range(turns):
        await asyncio.sleep(0)
    client.lose()
    await settle()
    assert not topic.is_connected
    other = connect()
    other.subscribe()
    other.open_producer(producer_name="p")
    await settle()
    assert sorted(other.heard) == ["producer_success", "success"]


async def test_a_client_that_gives_no_sign_of_life_makes_room(
    connect: Connect, topics: TopicDirectory, settle: Settle
) -> None:
    client, other = connect(), connect()
    client.subscribe()
    await settle()
    other.subscribe()
    assert not await client.connection.is_alive()
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
    assert await client.connection.is_alive()
    ledgers.writers[0].confirm()
    assert not context.held_back
    assert context.unconfirmed_bytes == 0


async def test_unconfirmed_bytes_of_a_lost_connection_are_given_up(
    connect: Connect, context: SessionContext, settle: Settle, ledgers: MemoryLedgers
) -> None:
    client = connect()
    client.open_producer()
    await settle()
    ledgers.is_prompt = False
    client.publish(b"a", b"b")
    assert context.unconfirmed_bytes > 0
    client.lose()
    assert context.unconfirmed_bytes == 0
    ledgers.writers[0].confirm()
    assert context.unconfirmed_bytes == 0
