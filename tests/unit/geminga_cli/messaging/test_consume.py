"""Proves what ``geminga consume`` and ``read`` show of messages, when they acknowledge and end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, metadata, until

from geminga import Client
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.commands import consume as consume_command
from geminga_cli.commands import read as read_command
from geminga_cli.messaging.consume import consume, read
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock

HEADING = "----- got message -----"
HEAD = "publishTime:[1700000000000], eventTime:[0], key:[null], properties:[], content:"


async def shown_of(
    client: Client,
    broker: FakeBroker,
    deliver: Callable[[], None],
    *words: str,
    show: Callable[[str], None] | None = None,
) -> list[str]:
    """What ``geminga consume`` shows when a broker delivers."""
    given = consume_command.make_parser().parse_args(["orders", "-s", "s", *words])
    shown: list[str] = []
    work = asyncio.ensure_future(consume(client, given, SimulatedClock(), show or shown.append))
    await until(lambda: broker.permits > 0)
    deliver()
    await work
    return shown


async def test_messages_are_shown_and_then_acknowledged(client: Client, broker: FakeBroker) -> None:
    def deliver() -> None:
        for number in range(3):
            broker.deliver(number, b"body %d" % number)

    shown = await shown_of(client, broker, deliver, "-n", "2")
    assert shown == [HEADING, f"{HEAD}body 0", HEADING, f"{HEAD}body 1"]
    await until(lambda: len(broker.acked) >= 2)
    assert broker.acked == [0, 1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["orders", "-s", ""], "subscription with a name"),
        (["a/b*/c", "--regex", "-s", "s"], "names no namespace"),
    ],
)
async def test_what_no_consumer_can_be_opened_with_is_told(
    client: Client, words: list[str], reason: str
) -> None:
    given = consume_command.make_parser().parse_args(words)
    with pytest.raises(InvalidUse, match=reason):
        await consume(client, given, SimulatedClock(), print)


async def test_what_could_not_be_shown_is_not_acknowledged(
    client: Client, broker: FakeBroker
) -> None:
    def show(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await shown_of(client, broker, lambda: broker.deliver(0, b"x"), show=show)
    assert broker.of_type(BaseCommand.CLOSE_CONSUMER)
    assert broker.acked == []


@pytest.mark.parametrize("words", [[], ["-mp"], ["--json"], ["-st", "auto_consume"]])
async def test_nothing_of_a_message_reaches_the_terminal_as_a_control_character(
    client: Client, broker: FakeBroker, words: list[str]
) -> None:
    evil = "\x1b]0;title\x07\n\u202e\x9b2J\x7f"
    told = metadata()
    told.partition_key = told.producer_name = evil
    told.properties.add(key=evil, value=evil)
    told.ordering_key = evil.encode()
    payload = encode_payload(told, evil.encode() + b"\xff")
    shown = await shown_of(client, broker, lambda: broker.deliver(0, payload=payload), *words)
    assert all(line.isprintable() for line in shown), shown
    assert "title" in shown[-1]


async def test_programs_get_text_or_base64(client: Client, broker: FakeBroker) -> None:
    def deliver() -> None:
        broker.deliver(0, "tea ☕".encode())
        broker.deliver(1, b"\xff", redelivery_count=2)

    shown = [json.loads(line) for line in await shown_of(client, broker, deliver, "-n2", "--json")]
    assert shown[0] == {
        "topic": "persistent://public/default/orders",
        "messageId": f"{LEDGER}:0:-1",
        "publishTime": 1_700_000_000_000,
        "eventTime": None,
        "producerName": "p",
        "sequenceId": 0,
        "redeliveryCount": 0,
        "key": None,
        "properties": {},
        "data": "tea ☕",
    }
    assert (shown[1]["dataBase64"], shown[1]["redeliveryCount"]) == ("/w==", 2)


async def test_programs_get_an_empty_ordering_key_as_text(
    client: Client, broker: FakeBroker
) -> None:
    told = metadata()
    told.ordering_key = b""
    payload = encode_payload(told, b"tea")
    shown = await shown_of(
        client, broker, lambda: broker.deliver(0, payload=payload), "-n1", "--json"
    )
    assert json.loads(shown[0])["orderingKey"] == ""


@pytest.mark.parametrize(("words", "content"), [(["--hex"], "61 ff"), ([], "a\\xff")])
async def test_contents_that_are_no_text_are_shown_all_the_same(
    client: Client, broker: FakeBroker, words: list[str], content: str
) -> None:
    shown = await shown_of(client, broker, lambda: broker.deliver(0, b"a\xff"), *words)
    assert shown == [HEADING, HEAD + content]


async def test_hidden_contents_are_acknowledged_all_the_same(
    client: Client, broker: FakeBroker
) -> None:
    assert await shown_of(client, broker, lambda: broker.deliver(0, b"x"), "--hide-content") == []
    assert broker.acked == [0]


async def test_a_rate_is_kept(client: Client, broker: FakeBroker) -> None:
    clock = SimulatedClock()
    before_s = clock.monotonic()

    def deliver() -> None:
        for number in range(5):
            broker.deliver(number)

    await shown_of(client, broker, deliver, "-n", "5", "-r", "1")
    assert clock.monotonic() - before_s >= 4


async def test_it_ends_before_a_message_that_was_published_later(
    client: Client, broker: FakeBroker
) -> None:
    def deliver() -> None:
        later = metadata(1)
        later.publish_time += 2
        broker.deliver(0, b"first")
        broker.deliver(1, payload=encode_payload(later, b"later"))

    end = str(metadata().publish_time + 1)
    shown = await shown_of(client, broker, deliver, "-n", "0", "-etp", end)
    assert shown == [HEADING, f"{HEAD}first"]
    assert broker.acked == [0]


async def test_the_subscription_is_as_was_asked(client: Client, broker: FakeBroker) -> None:
    words = ("-t", "Shared", "-p", "Earliest", "-rs", "-q", "7")
    await shown_of(client, broker, lambda: broker.deliver(0), *words)
    (command,) = broker.of_type(BaseCommand.SUBSCRIBE)
    told = command.subscribe
    assert told.subType == told.Shared
    assert told.initialPosition == told.Earliest
    assert told.replicate_subscription_state
    assert broker.of_type(BaseCommand.FLOW)[0].flow.messagePermits == 7


async def test_a_cancelled_consume_tells_what_was_acknowledged(
    client: Client, broker: FakeBroker
) -> None:
    given = consume_command.make_parser().parse_args(["orders", "-s", "s", "-n", "0"])
    shown: list[str] = []
    work = asyncio.ensure_future(consume(client, given, SimulatedClock(), shown.append))
    await until(lambda: broker.permits > 0)
    broker.deliver(0, b"x")
    await until(lambda: len(shown) == 2)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert broker.acked == [0]
    assert broker.of_type(BaseCommand.CLOSE_CONSUMER)


async def test_a_pattern_that_is_none_is_refused(client: Client) -> None:
    given: Any = consume_command.make_parser().parse_args(["(", "-s", "s", "--regex"])
    with pytest.raises(InvalidUse, match="no regular expression"):
        await consume(client, given, SimulatedClock(), lambda _: None)


async def test_reading_begins_where_was_said_and_acknowledges_nothing(
    client: Client, broker: FakeBroker
) -> None:
    given = read_command.make_parser().parse_args(["orders", "-m", f"{LEDGER}:4", "-i"])
    shown: list[str] = []
    work = asyncio.ensure_future(read(client, given, SimulatedClock(), shown.append))
    await until(lambda: broker.permits > 0)
    (command,) = broker.of_type(BaseCommand.SUBSCRIBE)
    start = command.subscribe.start_message_id
    assert not command.subscribe.durable
    assert (start.ledgerId, start.entryId) == (LEDGER, 3)  # behind the one before
    broker.deliver(4, b"fifth")
    await work
    assert shown == [HEADING, f"{HEAD}fifth"]
