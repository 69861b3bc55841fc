"""Proves that a send callback that raises harms no other message, and that somebody hears of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.outcomes import Outcomes

from geminga import Client, MessageId
from geminga.errors import ClientError, Closed, SendTimedOut
from geminga_protocol.pulsar.api_pb2 import BaseCommand


def broken(_: MessageId | None, __: ClientError | None) -> None:
    raise ZeroDivisionError


@pytest.fixture
async def raised() -> list[object]:
    """What the loop's exception handler was told of."""
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    return told


async def test_receipts_after_it_count(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    await producer.flush()
    assert [message_id.entry_id for message_id in outcomes.ids] == [1]
    assert len(broker.sessions) == 1, "the connection was kept"
    assert [type(error) for error in raised] == [ZeroDivisionError]


async def test_messages_time_out_after_it_as_before(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    broker.on(BaseCommand.SEND)
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    await asyncio.sleep(31)
    producer.send_nowait(b"2", outcomes)
    await asyncio.sleep(31)
    assert [type(error) for error in outcomes.errors] == [SendTimedOut, SendTimedOut]
    assert len(raised) == 1


async def test_closing_tells_all_others(
    client: Client, broker: FakeBroker, raised: list[object]
) -> None:
    broker.on(BaseCommand.SEND)
    outcomes = Outcomes()
    producer = await client.producer("orders")
    producer.send_nowait(b"0", broken)
    producer.send_nowait(b"1", outcomes)
    flushing = asyncio.create_task(producer.flush())
    await producer.close()
    await flushing
    assert [type(error) for error in outcomes.errors] == [Closed]
    assert len(raised) == 1
