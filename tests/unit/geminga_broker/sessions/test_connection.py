"""Proves what a connection takes, refuses, and leaves behind when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient, command_frame

from geminga_broker.sessions import outbox
from geminga_broker.sessions.back_pressure import THROTTLE_REVIEW_S
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_broker.sessions.handshake import REFUSED_WAIT_S, REFUSED_WAITING_MAX
from geminga_broker.sessions.outbox import WRITE_HIGH_WATER_BYTES
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import PART_NAMES
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, NotAuthorized, Principal, Resource
from geminga_server.config import ConnectionConfig
from geminga_server.connection_limits import ConnectionLimits

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

# Longer than a broker lets any command take.
OPERATION_S = 30.0


async def test_the_first_command_must_be_connect(context: SessionContext, settle: Settle) -> None:
    client = FrameClient(Connection(context))
    client.say("ping")
    await settle()
    assert client.transport.is_closing()
    assert not context.sessions


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
    ("limits", "reason"),
    [
        ({"connections_max": 2}, "Reached the maximum number of connections"),
        (
            {"connections_per_address_max": 2},
            "Reached the maximum number of connections on address/10.0.0.1:4711",
        ),
    ],
)
async def test_a_connection_too_many_is_told_so_as_upstream_and_closed(
    context: SessionContext, connect: Connect, settle: Settle, limits: dict[str, int], reason: str
) -> None:
    context.limits = ConnectionLimits(ConnectionConfig(**limits))
    first, second = connect(), connect()
    refused = FrameClient(Connection(context))
    await settle()
    assert not refused.answers
    refused.connected()
    await settle()
    ((name, error),) = refused.answers
    assert (name, error.error, error.message) == ("error", api.NotAllowedError, reason)
    assert error.request_id == 2**64 - 1
    assert refused.transport.is_closing()
    assert len(context.sessions) == 2
    first.lose()
    third = connect()
    await settle()
    assert [name for name, _ in (*second.answers, *third.answers)] == ["connected"] * 2
    assert sum(context.limits.refused.values()) == 1
    assert context.counts.connections_refused == 1


async def test_a_connection_too_many_that_says_nothing_is_told_soon_and_one_of_many_at_once(
    context: SessionContext, settle: Settle
) -> None:
    context.limits = ConnectionLimits(ConnectionConfig(connections_max=1))
    admitted = FrameClient(Connection(context))
    waiting = [FrameClient(Connection(context)) for _ in range(REFUSED_WAITING_MAX)]
    one_more = FrameClient(Connection(context))
    await settle()
    assert [name for name, _ in one_more.answers] == ["error"]
    assert not any(each.answers for each in waiting)
    await asyncio.sleep(REFUSED_WAIT_S)
    await settle()
    assert all([name for name, _ in each.answers] == ["error"] for each in waiting)
    assert all(each.transport.is_closing() for each in waiting)
    assert context.refused_waiting == 0
    assert not admitted.transport.is_closing()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\4\0\0\0\x09",
        b"\0\0\0\6\0\0\0\2\x08\x06",
        b"\0\0\0\0",
    ],
)
async def test_garbage_closes_the_connection(
    connect: Connect, settle: Settle, garbage: bytes
) -> None:
    client = connect()
    client.connection.data_received(garbage)
    await settle()
    assert client.transport.is_closing()


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


async def test_a_client_that_never_reads_is_not_read_either(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WRITE_HIGH_WATER_BYTES", 64 * 1024)
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


async def test_a_client_that_takes_nothing_for_a_keep_alive_interval_is_given_up(
    connect: Connect, context: SessionContext
) -> None:
    stuck, slow = connect(), connect()
    for client in (stuck, slow):
        client.transport.is_stuck = True
        client.session.send(bytes(2 * WRITE_HIGH_WATER_BYTES))
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
    client.session.send(bytes(2 * WRITE_HIGH_WATER_BYTES))
    await settle()
    assert not await client.session.is_alive()
    assert client.transport.is_aborted


@pytest.mark.parametrize("part", ["producer", "subscribe"])
async def test_a_topic_is_not_made_where_the_namespace_does_not_want_that(
    connect: Connect,
    context: SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    settle: Settle,
    topics: TopicDirectory,
    part: str,
) -> None:
    monkeypatch.setattr(context.discovery, "is_creating", False)
    client = connect()
    use = client.open_producer if part == "producer" else client.subscribe
    use()
    await settle()
    (error,) = client.all_of("error")
    assert error.error == api.TopicNotFound
    assert topics.loaded == []
    await topics.create(TopicName.parse(TOPIC), {})
    use()
    await settle()
    assert client.heard[-1] in ("success", "producer_success")


async def test_a_consumer_that_wants_no_topic_made_gets_none(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.subscribe(force_topic_creation=False)
    await settle()
    assert client.all_of("error")[0].error == api.TopicNotFound
    assert topics.loaded == []


# What needs no right of its own, and why.
UNASKED = {
    api.BaseCommand.CONNECT: "says who asks",
    api.BaseCommand.AUTH_RESPONSE: "says who asks",
    api.BaseCommand.PING: "a sign of life",
    api.BaseCommand.PONG: "a sign of life",
    api.BaseCommand.FLOW: "rides on the right to consume",
    api.BaseCommand.ACK: "rides on the right to consume",
    api.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: "rides on the right to consume",
    api.BaseCommand.CLOSE_CONSUMER: "gives a right back",
    api.BaseCommand.CLOSE_PRODUCER: "gives a right back",
    api.BaseCommand.WATCH_TOPIC_LIST_CLOSE: "gives a right back",
}
# The action that each of the others asks for, and its fields, of a client with a consumer 1.
ASKED: dict[int, tuple[Action, dict[str, object]]] = {
    api.BaseCommand.PRODUCER: (Action.PRODUCE, {"topic": TOPIC, "producer_id": 2}),
    api.BaseCommand.SUBSCRIBE: (
        Action.CONSUME,
        {"topic": TOPIC, "subscription": "s", "subType": 0, "consumer_id": 2},
    ),
    api.BaseCommand.SEEK: (Action.CONSUME, {"consumer_id": 1, "message_publish_time": 1}),
    api.BaseCommand.UNSUBSCRIBE: (Action.CONSUME, {"consumer_id": 1}),
    api.BaseCommand.GET_LAST_MESSAGE_ID: (Action.CONSUME, {"consumer_id": 1}),
    api.BaseCommand.CONSUMER_STATS: (Action.CONSUME, {"consumer_id": 1}),
    api.BaseCommand.GET_OR_CREATE_SCHEMA: (
        Action.PRODUCE,
        {"topic": TOPIC, "schema": api.Schema(name="", schema_data=b"", type=api.Schema.String)},
    ),
    api.BaseCommand.LOOKUP: (Action.LOOKUP, {"topic": TOPIC}),
    api.BaseCommand.PARTITIONED_METADATA: (Action.LOOKUP, {"topic": TOPIC}),
    api.BaseCommand.GET_TOPICS_OF_NAMESPACE: (Action.LOOKUP, {"namespace": "t/n"}),
    api.BaseCommand.WATCH_TOPIC_LIST: (
        Action.LOOKUP,
        {"namespace": "t/n", "topics_pattern": ".*", "watcher_id": 1},
    ),
}
# Answers that name their error otherwise.
ERROR_CODES = {"consumerStatsResponse", "getOrCreateSchemaResponse"}


class Refusing:
    """Refuses some actions, on whatever it is."""

    def __init__(self, *refused: Action) -> None:
        self._refused = refused

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        if action in self._refused:
            raise NotAuthorized(principal.role, action, str(resource))


async def test_every_command_asks_for_a_right_or_is_listed_with_the_reason(
    connect: Connect,
) -> None:
    assert connect().connection.handlers.keys() == UNASKED.keys() | ASKED.keys()


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: PART_NAMES[kind])
async def test_a_command_without_its_right_is_refused_and_does_nothing(
    connect: Connect, context: SessionContext, settle: Settle, topics: TopicDirectory, kind: int
) -> None:
    client = connect()
    client.subscribe(durable=False)
    await settle()
    action, fields = ASKED[kind]
    context.authorizer = Refusing(action)
    request_id = client.ask(PART_NAMES[kind], **fields)
    await settle()
    (name, answer) = client.answers[-1]
    assert answer.request_id == request_id
    error = answer.error_code if name in ERROR_CODES else answer.error
    assert error == api.AuthorizationError, name
    (topic,) = topics.loaded
    assert len(topic.subscriptions["sub"].consumers) == 1
    assert len(topic.subscriptions) == 1
    assert not len(topic.publishing.producers)


async def test_a_producer_may_make_no_subscription_that_it_may_not_use(
    connect: Connect, context: SessionContext, settle: Settle, topics: TopicDirectory
) -> None:
    context.authorizer = Refusing(Action.CONSUME)
    client = connect()
    client.open_producer(initial_subscription_name="first")
    await settle()
    (error,) = client.all_of("error")
    assert error.error == api.AuthorizationError
    assert topics.loaded == []


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
    assert not topic.connected_count
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
    assert not context.publish_buffer.held_back
    assert context.publish_buffer.pending_bytes == 0


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
