"""Proves what a cumulative acknowledgement means that names no entry of a ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]
MINUS_ONE = (1 << 64) - 1
CUMULATIVE = api.CommandAck.Cumulative


def entry(ledger_id: int, entry_id: int) -> api.MessageIdData:
    return api.MessageIdData(ledgerId=ledger_id, entryId=entry_id)


async def over_three_ledgers(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> tuple[FrameClient, Topic]:
    """A client subscribed to a topic of three ledgers, which have two entries, two, and one."""
    client = connect()
    client.subscribe()
    client.open_producer()
    await settle()
    (topic,) = topics.loaded.values()
    for bodies in ((b"a", b"b"), (b"c", b"d"), (b"e",)):
        await topic.managed_ledger.roll_over()
        client.publish(*bodies)
        await settle()
    return client, topic


async def test_one_behind_the_end_of_a_ledger_means_its_end(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client, topic = await over_three_ledgers(connect, settle, topics)
    first = topic.managed_ledger.chain.spans[0].ledger_id
    client.ask("ack", consumer_id=1, ack_type=CUMULATIVE, message_id=[entry(first, 1000)])
    await settle()
    assert client.all_of("ackResponse")[-1].error == 0
    assert topic.part(PersistentSubscriptions).named("sub").cursor.mark_delete == Position(first, 1)
    assert topic.part(PersistentSubscriptions).named("sub").cursor.backlog_entries == 3


@pytest.mark.parametrize("has_receipt", [False, True])
@pytest.mark.parametrize(("ledger", "backlog"), [(0, 5), (1, 3), (2, 1)])
async def test_one_before_the_first_entry_of_a_ledger_means_what_lies_before(
    connect: Connect,
    settle: Settle,
    topics: TopicDirectory,
    ledger: int,
    backlog: int,
    *,
    has_receipt: bool,
) -> None:
    """Clients name the entry before a batch of which they have acknowledged only some messages:
    in the first of a ledger that is entry -1. It once meant the whole ledger."""
    client, topic = await over_three_ledgers(connect, settle, topics)
    before = [entry(topic.managed_ledger.chain.spans[ledger].ledger_id, MINUS_ONE)]
    if has_receipt:
        client.ask("ack", consumer_id=1, ack_type=CUMULATIVE, message_id=before)
    else:
        client.say("ack", consumer_id=1, ack_type=CUMULATIVE, message_id=before)
    await settle()
    assert topic.part(PersistentSubscriptions).named("sub").cursor.backlog_entries == backlog
    client.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    assert len(client.all_of("message")) == backlog
