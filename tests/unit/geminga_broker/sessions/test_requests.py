"""Proves in which order commands that take time are done, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient, command_frame

from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_names import TopicName

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

# Longer than a broker lets any command take.
OPERATION_S = 30.0


async def test_commands_of_a_read_are_handled_in_order(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.connection.data_received(
        command_frame("subscribe", **_subscribing(1))
        + command_frame("close_consumer", **_ending(2))
    )
    await settle()
    assert client.heard == ["success", "success"]
    assert [each.request_id for each in client.all_of("success")] == [1, 2]


@pytest.mark.parametrize(
    ("part", "topic"),
    [
        ("lookupTopic", "t/n/undecided"),
        ("partitionMetadata", "t/n/undecided"),
        ("lookupTopic", "t/n/broken"),
        ("partitionMetadata", "t/n/broken"),
        ("lookupTopic", "t/n/nowhere"),
        ("lookupTopic", "not a topic://"),
    ],
)
async def test_a_discovery_that_fails_or_takes_too_long_is_answered_in_its_own_response(
    connect: Connect, part: str, topic: str
) -> None:
    client = connect()
    request_id = client.ask(part, topic=topic)
    await asyncio.sleep(OPERATION_S)
    ((name, answer),) = [each for each in client.answers if each[0] not in ("connected", "ping")]
    assert name == f"{part}Response"
    assert answer.request_id == request_id
    assert answer.response == answer.Failed
    assert answer.message
    expected = {"undecided": api.ServiceNotReady, "broken": api.UnknownError}
    assert answer.error == expected.get(topic.rpartition("/")[2], answer.error)


async def test_any_other_command_that_takes_too_long_is_told_to_try_again(
    connect: Connect, ledgers: MemoryLedgers
) -> None:
    ledgers.is_prompt = False
    client = connect()
    client.open_producer()
    await asyncio.sleep(1)
    client.publish(b"stays unconfirmed")
    request_id = client.ask("close_producer", producer_id=1)
    await asyncio.sleep(OPERATION_S)
    (error,) = client.all_of("error")
    assert (error.request_id, error.error) == (request_id, api.ServiceNotReady)
    ledgers.writers[0].confirm()


async def test_a_consumer_that_is_refused_for_now_is_also_let_go(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.say("subscribe", **{**_subscribing(7), "topic": "t/n/elsewhere"})
    await settle()
    assert client.heard == ["error", "close_consumer"]
    (error,), (close,) = client.all_of("error"), client.all_of("close_consumer")
    assert (error.request_id, error.error) == (7, api.ServiceNotReady)
    assert close.consumer_id == 1


async def test_a_consumer_that_is_refused_for_good_is_told_no_more(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.say("subscribe", **{**_subscribing(7), "topic": "t/n/nowhere"})
    await settle()
    assert client.heard == ["error"]


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
    assert not topic.connected_count
    other = connect()
    other.subscribe()
    other.open_producer(producer_name="p")
    await settle()
    assert sorted(other.heard) == ["producer_success", "success"]


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
