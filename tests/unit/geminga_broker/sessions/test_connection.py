"""Proves what a connection takes, refuses, and leaves behind when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient

from geminga_broker.sessions.commands.handshake import REFUSED_WAIT_S, REFUSED_WAITING_MAX
from geminga_broker.sessions.connection import HANDLERS, Connection
from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import PART_NAMES
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action, NotAuthorized, Principal, Resource
from geminga_server.config import ConnectionConfig
from geminga_server.connection_limits import ConnectionLimits

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


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
    assert topics.loaded == {}
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
    assert topics.loaded == {}


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
    api.BaseCommand.GET_SCHEMA: (Action.LOOKUP, {"topic": TOPIC}),
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
ERROR_CODES = {"consumerStatsResponse", "getOrCreateSchemaResponse", "getSchemaResponse"}


class Refusing:
    """Refuses some actions, on whatever it is."""

    def __init__(self, *refused: Action) -> None:
        self._refused = refused

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        if action in self._refused:
            raise NotAuthorized(principal.role, action, str(resource))


def test_every_command_asks_for_a_right_or_is_listed_with_the_reason() -> None:
    assert HANDLERS.keys() == UNASKED.keys() | ASKED.keys()


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: PART_NAMES[kind])
async def test_a_command_without_its_right_is_refused_and_does_nothing(
    connect: Connect, context: SessionContext, settle: Settle, topics: TopicDirectory, kind: int
) -> None:
    client = connect()
    client.subscribe(durable=False)
    await settle()
    action, fields = ASKED[kind]
    context.authorize = Refusing(action).authorize
    request_id = client.ask(PART_NAMES[kind], **fields)
    await settle()
    (name, answer) = client.answers[-1]
    assert answer.request_id == request_id
    error = answer.error_code if name in ERROR_CODES else answer.error
    assert error == api.AuthorizationError, name
    (topic,) = topics.loaded.values()
    assert len(topic.subscribing.subscriptions["sub"].consumers) == 1
    assert len(topic.subscribing.subscriptions) == 1
    assert not len(topic.publishing.producers.by_name)


async def test_a_producer_may_make_no_subscription_that_it_may_not_use(
    connect: Connect, context: SessionContext, settle: Settle, topics: TopicDirectory
) -> None:
    context.authorize = Refusing(Action.CONSUME).authorize
    client = connect()
    client.open_producer(initial_subscription_name="first")
    await settle()
    (error,) = client.all_of("error")
    assert error.error == api.AuthorizationError
    assert topics.loaded == {}


async def test_a_session_takes_no_messages_once_it_is_closed(connect: Connect) -> None:
    closed, lost = connect(), connect()
    assert closed.session.is_writable
    closed.session.close()
    lost.lose()
    for client in (closed, lost):
        assert not client.session.is_writable
        client.connection.resume_writing()
        assert not client.session.is_writable
