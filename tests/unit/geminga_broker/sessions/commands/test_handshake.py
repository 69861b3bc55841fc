"""Proves what CONNECT is answered with, and who a client is then: without authentication, and in
several steps, when it connects and when its credentials have expired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.geminga_broker.sessions.spelling import REFRESH_CHECK_S, spelling
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient, command_frame

from geminga_broker.sessions.command_rules.states import State
from geminga_broker.sessions.config import SessionConfig
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import NO_REQUEST_ID
from geminga_server.authentication import Authentication
from geminga_server.authorization import ANONYMOUS, Principal

Settle = Callable[[], Awaitable[None]]

REFRESH = b"PulsarAuthRefresh"
FLAGS = api.FeatureFlags(supports_auth_refresh=True)


# Without authentication


@pytest.mark.parametrize(("theirs", "agreed"), [(0, 0), (12, 12), (21, 21), (99, 21)])
async def test_the_lower_of_both_versions_is_spoken(
    context: SessionContext, settle: Settle, theirs: int, agreed: int
) -> None:
    client = FrameClient(Connection(context))
    client.say("connect", client_version="test", protocol_version=theirs)
    await settle()
    ((name, answer),) = client.answers
    assert (name, answer.protocol_version) == ("connected", agreed)
    assert client.session.protocol_version == agreed
    assert answer.server_version
    assert not answer.feature_flags.supports_scalable_topics


async def test_every_client_is_anonymous_whatever_credentials_it_has(
    context: SessionContext, settle: Settle
) -> None:
    client = FrameClient(Connection(context))
    client.say("connect", client_version="my client", auth_method_name="x", auth_data=b"secret")
    await settle()
    assert client.session.principal is ANONYMOUS
    assert client.session.client_version == "my_client"


async def test_connections_are_counted_by_how_they_went(
    context: SessionContext, settle: Settle
) -> None:
    greeted, refused = (
        FrameClient(Connection(context)).connected(),
        FrameClient(Connection(context)),
    )
    refused.say("ping")
    await settle()
    greeted.lose()
    counts = context.counts
    assert (counts.connections_made, counts.connections_closed) == (2, 2)
    assert (counts.connections_greeted, counts.connections_refused) == (1, 1)


@pytest.mark.parametrize(
    ("version", "is_known", "is_exposed", "expected"),
    [
        (18, True, True, True),
        (17, True, True, False),
        (21, False, True, False),
        (21, True, False, False),
    ],
)
async def test_clients_that_know_broker_entries_get_them_where_the_broker_exposes_them(
    context: SessionContext, version: int, *, is_known: bool, is_exposed: bool, expected: bool
) -> None:
    context.config = SessionConfig(exposing_broker_entry_metadata_to_client_enabled=is_exposed)
    client = FrameClient(Connection(context))
    flags = api.FeatureFlags(supports_broker_entry_metadata=is_known)
    client.say("connect", client_version="c", protocol_version=version, feature_flags=flags)
    assert client.session.gets_broker_entries is expected


# Authentication in steps


def coming(context: SessionContext, says: str, **fields: Any) -> FrameClient:
    """A client that connects with these credentials."""
    client = FrameClient(Connection(context))
    client.say(
        "connect",
        **{
            "client_version": "test",
            "protocol_version": 21,
            "auth_method_name": "spelling",
            "auth_data": says.encode(),
            "feature_flags": FLAGS,
            **fields,
        },
    )
    return client


def answer(client: FrameClient, says: str) -> None:
    """Answer a challenge."""
    client.say(
        "authResponse", response=api.AuthData(auth_method_name="spelling", auth_data=says.encode())
    )


def heard(client: FrameClient) -> list[str]:
    """The names of all that the broker said but PING."""
    return [name for name, _ in client.answers if name != "ping"]


def challenges(client: FrameClient) -> list[bytes]:
    return [each.challenge.auth_data for each in client.all_of("authChallenge")]


async def lives_for(client: FrameClient, seconds: float) -> bool:
    """Whether the connection lives so long, of a client that says PONG all the time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        await asyncio.sleep(min(5, end_s - loop.time()))
        if client.transport.is_closing():
            return False
        client.say("pong")
    return True


async def test_one_step_is_enough_where_the_method_asks_nothing(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann")
    client = coming(context, "ann")
    assert not client.answers
    assert client.session.principal is None
    await settle()
    assert heard(client) == ["connected"]
    assert client.session.principal == Principal("ann")


async def test_each_challenge_is_sent_and_its_answer_examined_by_the_same_exchange(
    context: SessionContext, settle: Settle
) -> None:
    method = spelling(context, "ann", "bob", "cid")
    client = coming(context, "ann", protocol_version=19)
    await settle()
    (challenge,) = client.all_of("authChallenge")
    assert challenge.challenge.auth_method_name == "spelling"
    assert challenge.protocol_version == 19
    answer(client, "bob")
    await settle()
    answer(client, "cid")
    await settle()
    assert heard(client) == ["authChallenge", "authChallenge", "connected"]
    assert challenges(client) == [b"bob", b"cid"]
    assert client.session.principal == Principal("ann")
    assert method.exchanges == 1
    assert context.counts.connections_greeted == 1
    client.open_producer()
    await settle()
    assert heard(client)[-1] == "producer_success"


@pytest.mark.parametrize("wrong", ["x", "bug", "busy"])
@pytest.mark.parametrize("steps", [0, 1])
async def test_a_client_with_wrong_credentials_or_answers_is_sent_away(
    context: SessionContext,
    settle: Settle,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
    steps: int,
) -> None:
    caplog.set_level(logging.INFO)
    spelling(context, "ann", "bob")
    client = coming(context, wrong if steps == 0 else "ann")
    await settle()
    if steps:
        answer(client, wrong)
        await settle()
    name, error = client.answers[-1]
    assert (name, error.error) == ("error", api.AuthenticationError)
    assert (error.request_id, error.message) == (NO_REQUEST_ID, "Failed to authenticate")
    assert len(client.all_of("error")) == 1
    assert client.transport.is_closing()
    assert client.session.principal is None
    assert not context.sessions
    assert context.counts.connections_refused == 1
    (closed,) = [each for each in caplog.records if each.message == "connection closed"]
    assert "authentication failed" in closed.__dict__["reason"]


async def test_a_client_of_another_method_is_anonymous_where_the_server_allows_that(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann")
    refused = coming(context, "ann", auth_method_name="token")
    await settle()
    assert heard(refused) == ["error"]
    assert refused.transport.is_closing()
    guest = Principal("guest", is_anonymous=True)
    context.authentication = Authentication(context.authentication.methods, anonymous=guest)
    admitted = coming(context, "ann", auth_method_name="token")
    assert admitted.session.principal is guest
    known = coming(context, "x")
    await settle()
    assert heard(known) == ["error"], "a method that there is decides"


async def test_a_client_that_does_not_answer_a_challenge_is_closed(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann", "bob")
    client = coming(context, "ann")
    await settle()
    assert not await lives_for(client, context.config.keepalive_s)
    assert client.transport.is_aborted
    assert heard(client) == ["authChallenge"]


@pytest.mark.parametrize("said", [b"", b"\0\0"])
async def test_a_client_that_does_not_even_say_connect_is_closed(
    context: SessionContext, said: bytes
) -> None:
    client = FrameClient(Connection(context))
    client.connection.data_received(said)
    await asyncio.sleep(context.config.keepalive_s - 1)
    assert not client.transport.is_closing()
    await asyncio.sleep(1.1)
    assert client.transport.is_aborted
    assert not context.sessions


async def test_a_method_that_takes_too_long_refuses_the_client(context: SessionContext) -> None:
    spelling(context, "ann")
    client = coming(context, "stuck")
    await asyncio.sleep(context.operation_timeout_s + 1)
    assert heard(client) == ["error"]
    assert client.transport.is_closing()


async def test_a_client_that_leaves_meanwhile_is_not_let_in_and_leaves_no_timer(
    context: SessionContext, settle: Settle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spelling(context, "ann", valid_s=1)
    client = coming(context, "stuck")
    await settle()
    client.lose()
    await asyncio.sleep(10 * REFRESH_CHECK_S)
    assert not client.transport.written
    assert context.counts.connections_greeted == 0
    assert not caplog.records


async def test_what_a_client_answers_before_it_was_asked_ends_the_connection(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann", "bob")
    client = coming(context, "ann")
    answer(client, "bob")
    await settle()
    assert client.transport.is_closing()
    assert not client.all_of("connected")


async def test_a_challenge_is_answered_once(context: SessionContext, settle: Settle) -> None:
    spelling(context, "ann", "bob", "bob")
    client = coming(context, "ann")
    await settle()
    answer(client, "bob")
    answer(client, "bob")
    await settle()
    assert client.transport.is_closing()
    assert heard(client) == ["authChallenge"]


async def test_what_is_found_out_after_the_end_changes_nothing(
    context: SessionContext, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelling(context, "ann")
    client = coming(context, "ann")
    monkeypatch.setattr(client.transport, "close", lambda: None)  # it waits for the client
    client.session.close()
    await settle()
    assert client.session.principal is None
    assert client.session.state is State.CLOSED


async def test_what_comes_along_with_a_connect_that_fails_is_not_heard(
    context: SessionContext, settle: Settle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spelling(context, "ann")
    client = FrameClient(Connection(context))
    first = command_frame("connect", client_version="c", auth_method_name="token")
    client.connection.data_received(first + command_frame("ping"))
    await settle()
    assert heard(client) == ["error"]
    assert [each.message for each in caplog.records] == ["connection closed"]


@pytest.mark.parametrize(
    "incomplete", [api.AuthData(auth_method_name="spelling"), api.AuthData(auth_data=b"bob")]
)
async def test_an_answer_without_all_of_its_fields_ends_the_connection(
    context: SessionContext, settle: Settle, incomplete: api.AuthData
) -> None:
    spelling(context, "ann", "bob")
    client = coming(context, "ann")
    await settle()
    client.say("authResponse", response=incomplete)
    await settle()
    assert client.transport.is_closing()
    assert heard(client) == ["authChallenge"], "it was not examined"


async def test_a_ping_is_answered_while_a_client_is_authenticated(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann", "bob")
    client = coming(context, "ann")
    client.say("ping")
    await settle()
    assert sorted(heard(client)) == ["authChallenge", "pong"]
    assert not client.transport.is_closing()


# Proxies


async def test_what_a_proxy_says_of_its_client_is_at_hand_and_the_broker_url_is_not_looked_at(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "proxy")
    client = coming(
        context,
        "proxy",
        proxy_version="4.0.6",
        proxy_to_broker_url="elsewhere:6650",
        original_principal="ann",
        original_auth_method="token",
        original_auth_data="secret",
    )
    await settle()
    assert heard(client) == ["connected"]
    assert client.session.principal == Principal("proxy", original="ann")
    forwarded = client.session.forwarded
    assert forwarded is not None
    assert (forwarded.proxy_version, forwarded.proxy_to_broker_url) == ("4.0.6", "elsewhere:6650")
    assert (forwarded.original_auth_method, forwarded.original_auth_data) == ("token", "secret")


# Refreshing


async def refreshed(context: SessionContext, settle: Settle, **fields: Any) -> FrameClient:
    """A connected client whose credentials expire before the first look at them."""
    client = coming(context, "ann", **fields)
    await settle()
    assert heard(client) == ["connected"]
    return client


async def test_expired_credentials_are_refreshed_while_the_client_goes_on(
    context: SessionContext, settle: Settle
) -> None:
    method = spelling(context, "ann", valid_s=90)
    client = await refreshed(context, settle)
    assert await lives_for(client, REFRESH_CHECK_S + 1)
    assert not challenges(client), "they hold for half a minute more"
    assert await lives_for(client, REFRESH_CHECK_S)
    assert challenges(client) == [REFRESH]
    client.ask("lookupTopic", topic=TOPIC)
    await settle()
    assert heard(client)[-1] == "lookupTopicResponse"
    answer(client, "ann")
    await settle()
    assert method.exchanges == 2
    assert await lives_for(client, REFRESH_CHECK_S)
    assert challenges(client) == [REFRESH]
    assert await lives_for(client, REFRESH_CHECK_S)
    assert challenges(client) == [REFRESH, REFRESH]


async def test_a_refresh_may_take_several_challenges(
    context: SessionContext, settle: Settle
) -> None:
    method = spelling(context, "ann", valid_s=1)
    client = await refreshed(context, settle)
    method.words = ("ann", "bob")
    method.valid_s = None
    assert await lives_for(client, REFRESH_CHECK_S + 1)
    answer(client, "ann")
    await settle()
    answer(client, "bob")
    await settle()
    assert challenges(client) == [REFRESH, b"bob"]
    assert await lives_for(client, 10 * REFRESH_CHECK_S), "the new ones hold for ever"
    assert challenges(client) == [REFRESH, b"bob"]


@pytest.mark.parametrize("answers", [[], ["ann"]])
async def test_a_client_that_does_not_answer_until_the_next_look_is_closed(
    context: SessionContext, settle: Settle, answers: list[str]
) -> None:
    method = spelling(context, "ann", valid_s=1)
    client = await refreshed(context, settle)
    method.words = ("ann", "bob")
    assert await lives_for(client, REFRESH_CHECK_S + 1)
    for each in answers:
        answer(client, each)
        await settle()
    assert await lives_for(client, REFRESH_CHECK_S / 2)
    assert not await lives_for(client, REFRESH_CHECK_S)
    assert not client.all_of("error")


@pytest.mark.parametrize(
    "fields",
    [{"feature_flags": api.FeatureFlags()}, {"original_principal": "zoe"}],
    ids=["a client that does not know refreshing", "behind a proxy"],
)
async def test_a_client_that_cannot_be_asked_is_closed_when_its_credentials_have_expired(
    context: SessionContext, settle: Settle, fields: dict[str, Any]
) -> None:
    spelling(context, "ann", valid_s=REFRESH_CHECK_S / 2)
    client = await refreshed(context, settle, **fields)
    assert await lives_for(client, REFRESH_CHECK_S - 5)
    assert not await lives_for(client, 10)
    assert not challenges(client)


async def test_credentials_that_do_not_expire_are_not_looked_at_again(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann")
    client = await refreshed(context, settle, feature_flags=api.FeatureFlags())
    assert await lives_for(client, 10 * REFRESH_CHECK_S)


async def test_a_client_with_wrong_fresh_credentials_is_sent_away(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann", valid_s=1)
    client = await refreshed(context, settle)
    assert await lives_for(client, REFRESH_CHECK_S + 1)
    answer(client, "x")
    await settle()
    (error,) = client.all_of("error")
    assert (error.request_id, error.error) == (NO_REQUEST_ID, api.AuthenticationError)
    assert client.transport.is_closing()


async def test_a_client_must_stay_the_principal_that_it_is(
    context: SessionContext, settle: Settle
) -> None:
    method = spelling(context, "ann", valid_s=1)
    client = await refreshed(context, settle)
    assert await lives_for(client, REFRESH_CHECK_S + 1)
    method.words = ("eve",)
    answer(client, "eve")
    await settle()
    assert client.transport.is_closing()


async def test_an_answer_to_no_challenge_of_a_connected_client_is_refused_and_it_goes_on(
    context: SessionContext, settle: Settle
) -> None:
    spelling(context, "ann")
    client = await refreshed(context, settle)
    answer(client, "x")
    await settle()
    (error,) = client.all_of("error")
    assert (error.request_id, error.error) == (NO_REQUEST_ID, api.NotAllowedError)
    assert await lives_for(client, 10)
