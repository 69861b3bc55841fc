"""Proves that every command in every state of a connection is answered, or ends the connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import (
    FrameClient,
    command_frame,
    least_fields,
)

from geminga_broker.sessions.command_rules.states import State, objection
from geminga_broker.sessions.connection import Connection
from geminga_broker.sessions.context import SessionContext
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PART_NAMES
from geminga_protocol.pulsar.messages.integers import encode_varint
from geminga_server.authentication import Authentication, Challenge, Exchange, Outcome
from geminga_server.config import ConnectionConfig
from geminga_server.connection_limits import ConnectionLimits

Settle = Callable[[], Awaitable[None]]

TYPES: dict[str, BaseCommand.Type.ValueType] = dict(BaseCommand.Type.items())
# What has no answer in Pulsar's protocol, of a client that is connected: it was heard. The ACK has
# no request id.
UNANSWERED = {"PONG", "FLOW", "ACK", "REDELIVER_UNACKNOWLEDGED_MESSAGES"}
# All that is taken before a client is connected, and its answer.
TAKEN_EARLY = {
    (State.STARTED, "CONNECT"): "authChallenge",
    (State.AUTHENTICATING, "AUTH_RESPONSE"): "authChallenge",
    (State.AUTHENTICATING, "PING"): "pong",
    (State.AUTHENTICATING, "PONG"): None,
}


class Asking:
    """A method that asks and asks."""

    name = "asking"

    def exchange(self) -> Exchange:
        return self

    async def begin(self, credentials: bytes) -> Outcome:
        return Challenge(credentials)

    async def answer(self, data: bytes) -> Outcome:
        return Challenge(data)


async def client_in(state: State, context: SessionContext, settle: Settle) -> FrameClient:
    """A client whose connection is in ``state``."""
    if state is State.CONNECTED:
        client = FrameClient(Connection(context)).connected()
        client.open_producer()
        client.subscribe()
    elif state is State.REFUSED:
        context.limits = ConnectionLimits(ConnectionConfig(connections_max=1))
        FrameClient(Connection(context))
        client = FrameClient(Connection(context))
    elif state is State.CLOSED:
        client = FrameClient(Connection(context)).connected()
        client.session.close()
    else:
        context.authentication = Authentication({Asking.name: Asking()})
        client = FrameClient(Connection(context))
        if state is State.AUTHENTICATING:
            client.say("connect", client_version="c", auth_method_name="asking")
    await settle()
    assert client.session.state is state
    return client


def example(name: str) -> bytes:
    """The frame of some command of that type."""
    part = PART_NAMES[TYPES[name]]
    fields = least_fields(part)
    if name == "CONNECT":
        fields["auth_method_name"] = "asking"
    if name == "AUTH_RESPONSE":
        fields["response"] = {"auth_method_name": "asking", "auth_data": b"x"}
    return command_frame(part, **fields)


def check(client: FrameClient, state: State, name: str, before: int) -> None:
    """What came of the command ``name``, after the first ``before`` answers."""
    new = [answer for answer, _ in client.answers[before:]]
    is_closing = client.transport.is_closing()
    if state is State.CLOSED:
        assert (new, is_closing) == ([], True)
    elif state is State.REFUSED:
        assert (new, is_closing) == (["error"], True)
    elif state is State.CONNECTED and name != "CONNECT":
        assert not is_closing
        assert bool(new) == (name not in UNANSWERED)
    elif (state, name) in TAKEN_EARLY:
        answer = TAKEN_EARLY[state, name]
        assert (new, is_closing) == ([] if answer is None else [answer], False)
    else:
        assert (new, is_closing) == ([], True)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("name", TYPES)
async def test_every_command_in_every_state_is_answered_or_ends_the_connection(
    context: SessionContext, settle: Settle, name: str, state: State
) -> None:
    client = await client_in(state, context, settle)
    before = len(client.answers)
    client.connection.data_received(example(name))
    await settle()
    check(client, state, name, before)


@pytest.mark.parametrize("state", [State.STARTED, State.AUTHENTICATING])
@pytest.mark.parametrize(
    "command",
    [b"\x08" + encode_varint(max(PART_NAMES) + 1), b"\x08\x09", b"\x08\x02", b"\x08\x25\xaa\x02\0"],
    ids=["of an unknown type", "without its part", "an empty CONNECT", "an empty answer"],
)
async def test_what_cannot_be_taken_early_ends_the_connection_as_well(
    context: SessionContext, settle: Settle, state: State, command: bytes
) -> None:
    client = await client_in(state, context, settle)
    before = len(client.answers)
    sizes = (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
    client.connection.data_received(sizes + command)
    await settle()
    assert client.transport.is_closing()
    assert len(client.answers) == before


async def test_what_follows_the_end_in_the_same_read_is_not_heard(
    context: SessionContext, settle: Settle
) -> None:
    client = await client_in(State.CONNECTED, context, settle)
    before = len(client.answers)
    client.connection.data_received(example("CONNECT") + example("PING"))
    await settle()
    assert client.transport.is_closing()
    assert len(client.answers) == before


async def test_what_comes_along_with_connect_is_heard_once_the_client_is_connected(
    context: SessionContext, settle: Settle
) -> None:
    client = FrameClient(Connection(context))
    first = command_frame("connect", client_version="c", protocol_version=21)
    client.connection.data_received(first + example("PING") + example("PING"))
    await settle()
    assert client.heard == ["pong", "pong"]


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_an_objection_names_the_command(state: State) -> None:
    refused = {name: objection(state, kind) for name, kind in TYPES.items()}
    for name, why in refused.items():
        assert why is None or name in why
    taken = {name for name, why in refused.items() if why is None}
    if state is State.CONNECTED:
        assert taken == TYPES.keys() - {"CONNECT"}
    else:
        assert taken == {name for early, name in TAKEN_EARLY if early is state}
