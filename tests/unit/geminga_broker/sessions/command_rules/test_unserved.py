"""Proves that every type of command there is has been decided: served, or refused in a way that its
sender understands, and that none but CONNECT costs a whole connection.

A type that is added to the protocol is in neither table: decide what becomes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import TOPIC, FrameClient, least_fields

from geminga_broker.sessions.command_rules.unserved import BROKERS_OWN, NEWER, TRANSACTIONS
from geminga_broker.sessions.connection import HANDLERS
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, PART_NAMES, PING
from geminga_protocol.pulsar.messages.integers import encode_varint

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]

ALL = dict(BaseCommand.Type.items())
# Those of Pulsar 4.0.
TYPES_OF_4 = 58
NEWEST_OF_4 = BaseCommand.TOPIC_MIGRATED

# What a client with a producer 1 and a consumer 1 is answered; None: nothing, ever.
SERVED: dict[str, tuple[dict[str, Any], str | None]] = {
    "CONNECT": ({}, None),  # once: see below
    "PING": ({}, "pong"),
    "PONG": ({}, None),
    "LOOKUP": ({"topic": TOPIC}, "lookupTopicResponse"),
    "PARTITIONED_METADATA": ({"topic": TOPIC}, "partitionMetadataResponse"),
    "GET_TOPICS_OF_NAMESPACE": ({"namespace": "t/n"}, "getTopicsOfNamespaceResponse"),
    "WATCH_TOPIC_LIST": (
        {"namespace": "t/n", "topics_pattern": ".*", "watcher_id": 1},
        "watchTopicListSuccess",
    ),
    "WATCH_TOPIC_LIST_CLOSE": ({"watcher_id": 1}, "success"),
    "PRODUCER": ({"topic": TOPIC, "producer_id": 2}, "producer_success"),
    "SEND": ({"producer_id": 1, "sequence_id": 0}, "send_error"),  # nothing is behind it
    "CLOSE_PRODUCER": ({"producer_id": 1}, "success"),
    "SUBSCRIBE": (
        {"topic": TOPIC, "subscription": "other", "subType": 0, "consumer_id": 2},
        "success",
    ),
    "FLOW": ({"consumer_id": 1, "messagePermits": 1}, None),
    "ACK": ({"consumer_id": 1, "ack_type": 0}, "ackResponse"),
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": ({"consumer_id": 1}, None),
    "SEEK": ({"consumer_id": 1, "message_publish_time": 1}, "success"),
    "GET_LAST_MESSAGE_ID": ({"consumer_id": 1}, "getLastMessageIdResponse"),
    "CONSUMER_STATS": ({"consumer_id": 1}, "consumerStatsResponse"),
    "UNSUBSCRIBE": ({"consumer_id": 1}, "success"),
    "CLOSE_CONSUMER": ({"consumer_id": 1}, "success"),
    "GET_SCHEMA": ({"topic": TOPIC}, "getSchemaResponse"),
    "GET_OR_CREATE_SCHEMA": (
        {"topic": TOPIC, "schema": {"name": "", "schema_data": b"", "type": 0}},
        "getOrCreateSchemaResponse",
    ),
}
# What the others are told: in which answer, and with which error.
REFUSED: dict[str, tuple[dict[str, Any], str, api.ServerError.ValueType]] = {
    "AUTH_RESPONSE": ({}, "error", api.NotAllowedError),
    "TC_CLIENT_CONNECT_REQUEST": ({"tc_id": 0}, "error", api.NotAllowedError),
    "NEW_TXN": ({}, "error", api.NotAllowedError),
    "ADD_PARTITION_TO_TXN": ({}, "addPartitionToTxnResponse", api.NotAllowedError),
    "ADD_SUBSCRIPTION_TO_TXN": ({}, "addSubscriptionToTxnResponse", api.NotAllowedError),
    "END_TXN": ({}, "endTxnResponse", api.NotAllowedError),
    "END_TXN_ON_PARTITION": ({}, "endTxnOnPartitionResponse", api.NotAllowedError),
    "END_TXN_ON_SUBSCRIPTION": ({}, "endTxnOnSubscriptionResponse", api.NotAllowedError),
    "SCALABLE_TOPIC_LOOKUP": ({"session_id": 1, "topic": TOPIC}, "error", api.NotAllowedError),
    "SCALABLE_TOPIC_CLOSE": ({"session_id": 1}, "error", api.NotAllowedError),
    "SCALABLE_TOPIC_SUBSCRIBE": (
        {
            "topic": TOPIC,
            "subscription": "s",
            "consumer_name": "c",
            "consumer_id": 1,
            "consumer_type": 0,
        },
        "scalableTopicSubscribeResponse",
        api.NotAllowedError,
    ),
    "WATCH_SCALABLE_TOPICS": ({"watch_id": 1, "namespace": "t/n"}, "error", api.NotAllowedError),
    "WATCH_SCALABLE_TOPICS_CLOSE": ({"watch_id": 1}, "error", api.NotAllowedError),
    "WATCH_TC_ASSIGNMENTS": ({"watch_id": 1}, "error", api.NotAllowedError),
    "WATCH_TC_ASSIGNMENTS_CLOSE": ({"watch_id": 1}, "error", api.NotAllowedError),
}
BROKERS = {BaseCommand.Type.Name(kind) for kind in BROKERS_OWN}


async def test_every_type_there_is_was_decided_once() -> None:
    assert ALL.keys() - SERVED.keys() - REFUSED.keys() - BROKERS == set(), "decide about these"
    assert len(SERVED) + len(REFUSED) + len(BROKERS) == len(ALL)
    assert sum(kind <= NEWEST_OF_4 for kind in ALL.values()) == TYPES_OF_4
    assert {name for name in REFUSED if ALL[name] in TRANSACTIONS | NEWER} == REFUSED.keys() - {
        "AUTH_RESPONSE"
    }


def test_what_is_served_has_a_handler() -> None:
    unchallenged = {BaseCommand.AUTH_RESPONSE}  # it has one, and is refused without a challenge
    assert {ALL[name] for name in SERVED} - {BaseCommand.SEND} == HANDLERS.keys() - unchallenged


async def using(connect: Connect, settle: Settle) -> FrameClient:
    """A client with a producer and a consumer, both 1."""
    client = connect()
    client.open_producer()
    client.subscribe()
    await settle()
    return client


def part_and_fields(name: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The part of that type, and its fields with a request id where it has one."""
    part = PART_NAMES[ALL[name]]
    field = BaseCommand.DESCRIPTOR.fields_by_name[part]
    assert field.message_type is not None
    is_request = "request_id" in field.message_type.fields_by_name
    return part, fields | ({"request_id": 4711} if is_request else {})


async def answer_of(
    client: FrameClient, settle: Settle, name: str, fields: dict[str, Any]
) -> tuple[str, Any] | None:
    """What comes for it, other than what consumers are told of their own accord."""
    before = len(client.answers)
    part, whole = part_and_fields(name, fields)
    client.say(part, **whole)
    await settle()
    answers = [each for each in client.answers[before:] if each[0] != "close_consumer"]
    assert len(answers) <= 1
    return answers[0] if answers else None


async def check_alive(client: FrameClient, settle: Settle) -> None:
    client.connection.data_received(PING)
    await settle()
    assert client.heard[-1] == "pong"
    assert not client.transport.is_closing()


@pytest.mark.parametrize("name", sorted(SERVED.keys() - {"CONNECT"}))
async def test_what_is_served_is_answered(connect: Connect, settle: Settle, name: str) -> None:
    client = await using(connect, settle)
    fields, expected = SERVED[name]
    answer = await answer_of(client, settle, name, fields)
    assert (answer and answer[0]) == expected
    if answer is not None and "request_id" in answer[1].DESCRIPTOR.fields_by_name:
        assert answer[1].request_id == 4711
    await check_alive(client, settle)


async def test_connect_comes_once(connect: Connect, settle: Settle) -> None:
    client = connect().connected()
    await settle()
    assert client.transport.is_closing()


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_served_is_refused_and_the_connection_lives(
    connect: Connect, settle: Settle, name: str
) -> None:
    client = await using(connect, settle)
    fields, part, error = REFUSED[name]
    answer = await answer_of(client, settle, name, fields)
    assert answer is not None
    assert answer[0] == part
    content = answer[1]
    has_request = "request_id" in part_and_fields(name, {})[1]
    assert content.request_id == (4711 if has_request else NO_REQUEST_ID)
    assert getattr(content, "error", getattr(content, "error_code", None)) == error
    assert getattr(content, "message", getattr(content, "error_message", ""))
    await check_alive(client, settle)


@pytest.mark.parametrize("name", sorted(BROKERS))
async def test_what_only_brokers_say_is_refused_without_naming_a_request(
    connect: Connect, settle: Settle, name: str
) -> None:
    """Its request id is none of the client's: an error with it would end another request."""
    client = await using(connect, settle)
    part = PART_NAMES[ALL[name]]
    client.say(part, **least_fields(part))
    await settle()
    name, error = client.answers[-1]
    assert (name, error.request_id, error.error) == ("error", NO_REQUEST_ID, api.NotAllowedError)
    await check_alive(client, settle)


# Commands that are wrong


def frame(command: bytes) -> bytes:
    """The frame of a command."""
    return (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


@pytest.mark.parametrize("number", [1, 69, max(PART_NAMES) + 1, 1 << 28])
@pytest.mark.parametrize("has_part", [False, True])
async def test_an_unknown_type_is_refused_and_the_connection_lives(
    connect: Connect, settle: Settle, number: int, *, has_part: bool
) -> None:
    client = await using(connect, settle)
    part = encode_varint(number << 3 | 2) + b"\x02\x08\x07" if has_part and number > 1 else b""
    client.connection.data_received(frame(b"\x08" + encode_varint(number) + part))
    await settle()
    name, error = client.answers[-1]
    assert (name, error.request_id) == ("error", NO_REQUEST_ID)
    assert error.error == api.UnsupportedVersionError
    assert str(number) in error.message
    await check_alive(client, settle)


@pytest.mark.parametrize("name", [*SERVED, *REFUSED])
async def test_a_request_that_lacks_fields_is_told_which(
    connect: Connect, settle: Settle, name: str
) -> None:
    """What is no request, or does not say which, cannot be told: its connection ends."""
    client = await using(connect, settle)
    part, fields = part_and_fields(name, {})
    content = getattr(BaseCommand(), part)
    required = {each.name for each in type(content).DESCRIPTOR.fields if each.is_required}
    if not required - {"request_id"}:
        return  # nothing else is missing
    command = BaseCommand(type=ALL[name])
    getattr(command, part).SetInParent()
    getattr(command, part).MergeFrom(type(content)(**fields))
    client.connection.data_received(frame(command.SerializePartialToString()))
    await settle()
    if not fields:
        assert client.transport.is_closing()
        return
    _, answer = client.answers[-1]
    assert answer.request_id == 4711
    for missing in required - {"request_id"}:
        assert missing in str(answer)
    await check_alive(client, settle)


# Ids that no producer or consumer has


@pytest.mark.parametrize("name", ["SEEK", "UNSUBSCRIBE", "GET_LAST_MESSAGE_ID", "CONSUMER_STATS"])
async def test_a_consumer_that_is_not_there_is_named(
    connect: Connect, settle: Settle, name: str
) -> None:
    client = await using(connect, settle)
    answer = await answer_of(client, settle, name, SERVED[name][0] | {"consumer_id": 99})
    assert answer is not None
    assert answer[1].request_id == 4711
    assert "Consumer not found" in str(answer[1])
    await check_alive(client, settle)


@pytest.mark.parametrize(
    "name",
    ["FLOW", "REDELIVER_UNACKNOWLEDGED_MESSAGES", "CLOSE_CONSUMER", "CLOSE_PRODUCER"],
)
async def test_a_command_for_an_unknown_producer_or_consumer_changes_nothing(
    connect: Connect, settle: Settle, name: str
) -> None:
    client = await using(connect, settle)
    fields = {
        field: 99 if field.endswith("_id") else value for field, value in SERVED[name][0].items()
    }
    answer = await answer_of(client, settle, name, fields)
    assert (answer and answer[0]) == SERVED[name][1]
    await check_alive(client, settle)
