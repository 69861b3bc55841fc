"""Proves what CONNECT is answered with, and who a client is then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.sessions.config import SessionConfig
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_protocol.pulsar import api_pb2 as api
from geminga_server.authorization import ANONYMOUS

Settle = Callable[[], Awaitable[None]]


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


async def test_whoever_comes_is_anonymous_whatever_credentials_it_has(
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
async def test_who_knows_broker_entries_gets_them_where_the_broker_shows_them(
    context: SessionContext, version: int, *, is_known: bool, is_exposed: bool, expected: bool
) -> None:
    context.config = SessionConfig(exposing_broker_entry_metadata_to_client_enabled=is_exposed)
    client = FrameClient(Connection(context))
    flags = api.FeatureFlags(supports_broker_entry_metadata=is_known)
    client.say("connect", client_version="c", protocol_version=version, feature_flags=flags)
    assert client.session.gets_broker_entries is expected
