"""Proves what a session does while it is still being found out what its client may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.context import SessionContext
from geminga_broker.topics.directory import TopicDirectory
from geminga_protocol.pulsar import api_pb2 as api
from geminga_server.authorization import Action, Principal, Resource

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


class SlowAuthorizer:
    """Notes every question, and allows what is asked when ``answer`` is called."""

    def __init__(self) -> None:
        self.questions: list[Action] = []
        self._answered = asyncio.Event()

    def answer(self) -> None:
        self._answered.set()

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        del principal, resource
        self.questions.append(action)
        await self._answered.wait()


@pytest.fixture
async def authorizer(context: SessionContext) -> SlowAuthorizer:
    authorizer = SlowAuthorizer()
    context.authorize = authorizer.authorize
    return authorizer


async def test_commands_of_one_consumer_keep_their_order_while_the_first_is_authorized(
    connect: Connect, authorizer: SlowAuthorizer, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.subscribe()
    client.ask("close_consumer", consumer_id=1)
    client.say("ping")
    await settle()
    assert client.heard == ["pong"]
    authorizer.answer()
    await settle()
    assert [each.request_id for each in client.all_of("success")] == [1, 2]
    (topic,) = topics.loaded.values()
    assert not topic.subscribing.subscriptions["sub"].consumers


async def test_an_open_producer_and_its_messages_ask_once(
    connect: Connect, authorizer: SlowAuthorizer, settle: Settle
) -> None:
    authorizer.answer()
    client = connect()
    client.open_producer()
    await settle()
    client.publish(b"one", b"two", b"three")
    await settle()
    assert client.heard.count("send_receipt") == 3
    assert authorizer.questions == [Action.PRODUCE]


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("seek", {"message_publish_time": 1}),
        ("unsubscribe", {}),
        ("getLastMessageId", {}),
    ],
)
async def test_a_consumer_that_its_topic_closed_meanwhile_is_not_found(
    connect: Connect,
    context: SessionContext,
    settle: Settle,
    topics: TopicDirectory,
    part: str,
    fields: dict[str, object],
) -> None:
    client = connect()
    client.subscribe()
    await settle()
    authorizer = SlowAuthorizer()
    context.authorize = authorizer.authorize
    client.ask(part, consumer_id=1, **fields)
    await settle()
    await topics.unload_where(lambda _: True)
    await settle()
    authorizer.answer()
    await settle()
    assert client.heard == ["success", "close_consumer", "error"]
    (error,) = client.all_of("error")
    assert (error.error, error.message) == (api.MetadataError, "Consumer not found")
