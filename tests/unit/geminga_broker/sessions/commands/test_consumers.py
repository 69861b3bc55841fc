"""Proves what consumers get and may ask, and that nonsense from them does no harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_protocol.pulsar import api_pb2 as api

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]
MINUS_ONE = (1 << 64) - 1


def entry(ledger_id: int, entry_id: int) -> api.MessageIdData:
    return api.MessageIdData(ledgerId=ledger_id, entryId=entry_id)


async def consuming(connect: Connect, settle: Settle, *bodies: bytes) -> FrameClient:
    """A client subscribed to a topic to which those messages were published then."""
    client = connect()
    client.subscribe()
    client.open_producer()
    await settle()
    client.publish(*bodies)
    await settle()
    return client


def entries_of(client: FrameClient) -> list[int]:
    return [each.message_id.entryId for each in client.all_of("message")]


async def test_a_consumer_gets_as_many_messages_as_it_permits(
    connect: Connect, settle: Settle
) -> None:
    client = await consuming(connect, settle, b"a", b"b", b"c")
    assert entries_of(client) == []
    client.say("flow", consumer_id=1, messagePermits=2)
    await settle()
    assert entries_of(client) == [0, 1]
    client.say("flow", consumer_id=1, messagePermits=(1 << 31) - 1)
    client.say("flow", consumer_id=1, messagePermits=(1 << 31) - 1)
    client.say("flow", consumer_id=7, messagePermits=1)
    await settle()
    assert entries_of(client) == [0, 1, 2]
    stats = client.ask("consumerStats", consumer_id=1)
    await settle()
    (answer,) = client.all_of("consumerStatsResponse")
    assert (answer.request_id, answer.availablePermits) == (stats, (1 << 31) - 1)


@pytest.mark.parametrize("permits", [0, 1 << 31, (1 << 32) - 1])
async def test_permits_that_cannot_be_end_the_connection_and_no_other(
    connect: Connect, settle: Settle, permits: int
) -> None:
    client, other = await consuming(connect, settle, b"a"), connect()
    other.subscribe(1, "other")
    await settle()
    client.say("flow", consumer_id=1, messagePermits=permits)
    await settle()
    assert client.transport.is_closing()
    assert not other.transport.is_closing()


async def test_large_messages_are_handed_to_the_socket_without_being_joined(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer()
    client.subscribe()
    await settle()
    client.say("flow", consumer_id=1, messagePermits=10)
    client.publish(b"small", b"small")
    await settle()
    assert client.transport.pieces_max == 0
    client.publish(bytes(20_000), bytes(20_000))
    await settle()
    assert client.transport.pieces_max >= 4
    assert client.heard.count("message") == 4


async def test_acknowledgements_of_foreign_messages_are_answered_and_change_nothing(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = await consuming(connect, settle, b"a")
    foreign = [entry(9, 9), entry(MINUS_ONE, MINUS_ONE), entry(0, 1)]
    foreign += [api.MessageIdData(ledgerId=9, entryId=1, ack_set=[5])]
    client.ask("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=foreign)
    for each in foreign[:2]:
        client.ask("ack", consumer_id=1, ack_type=api.CommandAck.Cumulative, message_id=[each])
    await settle()
    errors = [each.error for each in client.all_of("ackResponse")]
    assert sorted(errors) == [0, 0, api.MetadataError], "beyond the end, nothing can be meant"
    (topic,) = topics.loaded.values()
    assert topic.part(PersistentSubscriptions).named("sub").cursor.mark_delete is not None
    assert not client.transport.is_closing()


async def test_an_acknowledgement_of_an_unknown_consumer_is_refused(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("ack", consumer_id=5, ack_type=api.CommandAck.Individual, message_id=[entry(0, 0)])
    await settle()
    (answer,) = client.all_of("ackResponse")
    assert answer.error == api.ConsumerNotFound
    assert answer.message, "clients that look at the message alone would take it for a success"


async def test_requests_for_a_consumer_that_is_not_there_are_answered(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("close_consumer", consumer_id=5)
    client.ask("unsubscribe", consumer_id=5)
    client.ask("seek", consumer_id=5, message_id=entry(0, 0))
    client.ask("getLastMessageId", consumer_id=5)
    client.say("redeliverUnacknowledgedMessages", consumer_id=5)
    await settle()
    assert client.heard == ["success", "error", "error", "error"]
    assert {each.error for each in client.all_of("error")} == {api.MetadataError}


async def test_subscribing_twice_under_one_id_is_subscribing_once(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    client = connect()
    client.subscribe()
    client.subscribe()
    await settle()
    assert client.heard == ["success", "success"]
    assert len(next(iter(topics.loaded.values())).subscribing.subscriptions["sub"].consumers) == 1


async def test_a_seek_lets_the_consumer_go_before_it_is_answered(
    connect: Connect, settle: Settle
) -> None:
    client = await consuming(connect, settle, b"a", b"b")
    client.say("flow", consumer_id=1, messagePermits=9)
    client.ask("seek", consumer_id=1, message_id=entry(MINUS_ONE, MINUS_ONE))
    await settle()
    assert client.heard[-2:] == ["close_consumer", "success"]
    client.subscribe()
    await settle()
    client.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    assert entries_of(client) == [0, 1, 0, 1]


async def test_a_reader_begins_with_the_entry_it_names(connect: Connect, settle: Settle) -> None:
    client = await consuming(connect, settle, b"a", b"b", b"c")
    client.subscribe(2, "reader", durable=False, start_message_id=entry(0, 1))
    await settle()
    client.say("flow", consumer_id=2, messagePermits=9)
    await settle()
    assert entries_of(client) == [1, 2]


async def test_the_last_message_of_an_empty_topic_is_none(connect: Connect, settle: Settle) -> None:
    client = await consuming(connect, settle)
    client.ask("getLastMessageId", consumer_id=1)
    await settle()
    (answer,) = client.all_of("getLastMessageIdResponse")
    assert answer.last_message_id.entryId == MINUS_ONE


async def test_a_non_persistent_topic_has_nothing_to_go_back_to(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    topic = "non-persistent://t/n/t"
    client.ask("subscribe", topic=topic, subscription="sub", consumer_id=1, subType=SHARED)
    await settle()
    client.ask("seek", consumer_id=1, message_id=entry(0, 0))
    client.ask("seek", consumer_id=1, message_publish_time=1)
    client.ask("getLastMessageId", consumer_id=1)
    await settle()
    assert client.heard == ["success", "error", "error", "error"]
    assert [each.message for each in client.all_of("error")] == [
        "a non-persistent topic keeps no messages to seek to",
        "a non-persistent topic keeps no messages to seek to",
        "a non-persistent topic keeps no last message",
    ]
    assert {each.error for each in client.all_of("error")} == {api.NotAllowedError}


async def test_an_exclusive_subscription_takes_one_of_two_at_once(
    connect: Connect, settle: Settle
) -> None:
    client, other = connect(), connect()
    client.subscribe()
    other.subscribe()
    await settle()
    client.say("pong")
    other.say("pong")
    await settle()
    assert sorted(client.heard + other.heard) == ["error", "success"]


async def test_redelivery_sends_again_what_is_not_acknowledged(
    connect: Connect, settle: Settle
) -> None:
    client = await consuming(connect, settle, b"a", b"b")
    client.say("flow", consumer_id=1, messagePermits=9)
    client.say("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=[entry(0, 0)])
    client.say("redeliverUnacknowledgedMessages", consumer_id=1)
    await settle()
    assert entries_of(client) == [0, 1, 1]


@pytest.mark.parametrize("kind", [api.CommandSubscribe.Exclusive, api.CommandSubscribe.Failover])
async def test_messages_sent_in_order_bear_the_epoch_in_which_they_were_asked_for(
    connect: Connect, settle: Settle, kind: int
) -> None:
    client = connect()
    client.subscribe(subType=kind, consumer_epoch=3)
    client.open_producer()
    await settle()
    client.publish(b"a")
    client.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    for epoch in (5, 4):  # the second one was overtaken
        client.say("redeliverUnacknowledgedMessages", consumer_id=1, consumer_epoch=epoch)
    client.say("redeliverUnacknowledgedMessages", consumer_id=1)
    await settle()
    assert [each.consumer_epoch for each in client.all_of("message")] == [3, 5, 5, 5]


@pytest.mark.parametrize(
    ("kind", "epoch"),
    [(api.CommandSubscribe.Exclusive, None), (api.CommandSubscribe.Shared, 3)],
)
async def test_without_an_epoch_or_an_order_messages_bear_none(
    connect: Connect, settle: Settle, kind: int, epoch: int | None
) -> None:
    client = connect()
    client.subscribe(subType=kind, consumer_epoch=epoch)
    client.open_producer()
    await settle()
    client.publish(b"a")
    client.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    (message,) = client.all_of("message")
    assert not message.HasField("consumer_epoch")


@pytest.mark.parametrize("kind", [api.CommandAck.Individual, api.CommandAck.Cumulative])
async def test_an_acknowledgement_in_a_transaction_is_refused_and_changes_nothing(
    connect: Connect, settle: Settle, topics: TopicDirectory, kind: int
) -> None:
    client = await consuming(connect, settle, b"a")
    fields = {"ack_type": kind, "message_id": [entry(0, 0)], "txnid_least_bits": 7}
    client.ask("ack", consumer_id=1, **fields)
    client.say("ack", consumer_id=1, **fields)
    await settle()
    (answer,) = client.all_of("ackResponse")
    assert answer.error == api.NotAllowedError
    (topic,) = topics.loaded.values()
    assert topic.part(PersistentSubscriptions).named("sub").cursor.mark_delete == Position(0, -1)


# The end of a topic


@pytest.mark.parametrize(
    ("version", "is_told"), [("Pulsar-Java-v4.0.6", True), ("Pulsar-CPP-v3.13.0", False)]
)
async def test_a_consumer_that_acknowledged_all_of_a_terminated_topic_is_told_once(
    connect: Connect, settle: Settle, topics: TopicDirectory, version: str, *, is_told: bool
) -> None:
    client = await consuming(connect, settle, b"a")
    client.session.client_version = version
    client.say("flow", consumer_id=1, messagePermits=5)
    await settle()
    (topic,) = topics.loaded.values()
    await topic.terminate()
    await settle()
    assert client.heard[-1] == "close_producer"
    client.open_producer()
    await settle()
    assert [each.error for each in client.all_of("error")] == [api.TopicTerminatedError]
    (message,) = client.all_of("message")
    assert "reachedEndOfTopic" not in client.heard
    client.say("ack", consumer_id=1, ack_type=0, message_id=[message.message_id])
    client.say("flow", consumer_id=1, messagePermits=5)
    await settle()
    assert client.heard.count("reachedEndOfTopic") == int(is_told)


# Nonsense: the client that says it is told, or cut off, and no other client notices

SHARED = api.CommandSubscribe.Shared


async def check_unharmed(
    connect: Connect, settle: Settle, topics: TopicDirectory, backlog: int
) -> None:
    """Another client gets what it would have got; nothing of the backlog is lost."""
    (topic,) = topics.loaded.values()
    assert topic.part(PersistentSubscriptions).named("sub").cursor.backlog_entries == backlog
    other = connect()
    other.subscribe(1, "other", initialPosition=api.CommandSubscribe.Earliest)
    await settle()
    other.say("flow", consumer_id=1, messagePermits=100)
    await settle()
    assert len(entries_of(other)) == topic.managed_ledger.chain.total_entries
    assert all(
        each.unacknowledged >= 0
        for subscription in topic.subscribing.subscriptions.values()
        for each in subscription.consumers
    )


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"subscription": ""}, api.ProducerBusy, "Empty subscription name"),
        ({"subscription": " "}, api.ProducerBusy, "Empty subscription name"),
        ({"subscription": "pulsar.repl.x"}, api.ProducerBusy, "reserved subscription name"),
        ({"subscription": "pulsar.dedup"}, api.ProducerBusy, "reserved subscription name"),
        ({"subscription": "__compaction"}, api.NotAllowedError, "__compaction"),
        ({"subType": SHARED, "read_compacted": True}, api.NotAllowedError, "readCompacted only"),
        ({"durable": False}, api.NotAllowedError, "Durable subscription with the same name"),
        ({"subType": SHARED}, api.ConsumerBusy, "different type"),
    ],
)
async def test_a_consumer_that_cannot_be_is_told_why(
    connect: Connect,
    settle: Settle,
    topics: TopicDirectory,
    fields: dict[str, object],
    error: int,
    message: str,
) -> None:
    first, client = await consuming(connect, settle, b"a", b"b"), connect()
    client.subscribe(7, **cast(dict[str, Any], {"subscription": "sub", **fields}))
    await settle()
    (answer,) = client.all_of("error")
    assert (answer.error, message in answer.message) == (error, True), answer
    assert first.heard.count("error") == 0
    await check_unharmed(connect, settle, topics, backlog=2)


@pytest.mark.parametrize(
    "start", [entry(0, 0), entry(9, 9), entry(MINUS_ONE, 5), entry(1 << 62, 0)]
)
@pytest.mark.parametrize("batch_index", [-1, 0, 1 << 30])
async def test_a_reader_may_begin_anywhere(
    connect: Connect, settle: Settle, start: api.MessageIdData, batch_index: int
) -> None:
    client = await consuming(connect, settle, b"a", b"b")
    begin = api.MessageIdData(
        ledgerId=start.ledgerId, entryId=start.entryId, batch_index=batch_index
    )
    client.subscribe(2, "reader", durable=False, start_message_id=begin)
    await settle()
    client.say("flow", consumer_id=2, messagePermits=9)
    await settle()
    assert entries_of(client) in ([0, 1], [])
    assert client.heard[-1] != "error"


ALL_BITS = -1


@pytest.mark.parametrize("kind", [api.CommandSubscribe.Exclusive, SHARED])
@pytest.mark.parametrize(
    "ack_set", [[ALL_BITS] * 20_000, [ALL_BITS] * 16_000, [1 << 62], [0, 0, 1], [ALL_BITS]]
)
async def test_ack_sets_that_fit_no_batch_concern_that_message_alone(
    connect: Connect, settle: Settle, topics: TopicDirectory, kind: int, ack_set: list[int]
) -> None:
    client = connect()
    client.subscribe(subType=kind)
    client.open_producer()
    await settle()
    client.publish(b"a", b"b", b"c")
    client.say("flow", consumer_id=1, messagePermits=100)
    await settle()
    (topic,) = topics.loaded.values()
    ledger_id = topic.managed_ledger.chain.spans[0].ledger_id
    odd = api.MessageIdData(ledgerId=ledger_id, entryId=0, ack_set=ack_set)
    client.ask("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=[odd])
    client.say("redeliverUnacknowledgedMessages", consumer_id=1)
    await settle()
    (consumer,) = topic.subscribing.subscriptions["sub"].consumers
    assert entries_of(client) == [0, 1, 2, 0, 1, 2]
    assert (consumer.permits, consumer.unacknowledged) == (94, 3 if kind == SHARED else 0)
    whole = api.MessageIdData(ledgerId=ledger_id, entryId=0)
    client.ask("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=[whole])
    await settle()
    assert client.all_of("ackResponse")[-1].error == 0
    await check_unharmed(connect, settle, topics, backlog=2)


@pytest.mark.parametrize("kind", [api.CommandSubscribe.Exclusive, SHARED])
async def test_asking_again_for_entries_that_were_never_sent_changes_nothing(
    connect: Connect, settle: Settle, topics: TopicDirectory, kind: int
) -> None:
    client = connect()
    client.subscribe(subType=kind)
    client.open_producer()
    await settle()
    client.publish(b"a", b"b")
    client.say("flow", consumer_id=1, messagePermits=1)
    await settle()
    foreign = [entry(9, 9), entry(MINUS_ONE, MINUS_ONE), entry(1 << 63, 1 << 63)]
    client.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=foreign)
    client.say("redeliverUnacknowledgedMessages", consumer_id=99, message_ids=foreign)
    client.say("redeliverUnacknowledgedMessages", consumer_id=99)
    await settle()
    assert entries_of(client) == [0]
    await check_unharmed(connect, settle, topics, backlog=2)


async def test_no_connection_acknowledges_for_the_consumer_of_another_or_moves_it(
    connect: Connect, settle: Settle, topics: TopicDirectory
) -> None:
    mine, thief = await consuming(connect, settle, b"a", b"b"), connect()
    mine.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    ids = [mine.all_of("message")[0].message_id]
    thief.ask("ack", consumer_id=1, ack_type=api.CommandAck.Individual, message_id=ids)
    thief.ask("ack", consumer_id=1, ack_type=api.CommandAck.Cumulative, message_id=ids)
    thief.ask("seek", consumer_id=1, message_publish_time=0)
    thief.ask("unsubscribe", consumer_id=1, force=True)
    thief.ask("close_consumer", consumer_id=1)
    thief.ask("getLastMessageId", consumer_id=1)
    thief.ask("consumerStats", consumer_id=1)
    thief.say("flow", consumer_id=1, messagePermits=9)
    await settle()
    assert [each.error for each in thief.all_of("ackResponse")] == [api.ConsumerNotFound] * 2
    assert [each.error for each in thief.all_of("error")] == [api.MetadataError] * 3
    assert thief.all_of("consumerStatsResponse")[0].error_code == api.ConsumerNotFound
    assert "close_consumer" not in mine.heard
    await check_unharmed(connect, settle, topics, backlog=2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, api.MetadataError),
        ({"message_id": entry(9, 9)}, None),
        ({"message_id": entry(MINUS_ONE, 7)}, None),
        ({"message_id": api.MessageIdData(ledgerId=0, entryId=0, partition=77)}, None),
        ({"message_id": api.MessageIdData(ledgerId=0, entryId=0, ack_set=[-1] * 20_000)}, None),
        ({"message_publish_time": (1 << 64) - 1}, None),
        ({"message_publish_time": 0, "message_id": entry(0, 0)}, None),
    ],
)
async def test_a_seek_to_anywhere_loses_nothing_and_one_to_nowhere_is_refused(
    connect: Connect,
    settle: Settle,
    topics: TopicDirectory,
    fields: dict[str, object],
    error: int | None,
) -> None:
    client = await consuming(connect, settle, b"a", b"b")
    request_id = client.ask("seek", consumer_id=1, **fields)
    await settle()
    name, answer = client.answers[-1]
    assert (name, answer.request_id) == ("success" if error is None else "error", request_id)
    if error is not None:
        assert answer.message == "Message id and message publish time were not present"
        assert "close_consumer" not in client.heard
    client.subscribe()
    await settle()
    client.ask("seek", consumer_id=1, message_id=entry(MINUS_ONE, MINUS_ONE))
    await settle()
    await check_unharmed(connect, settle, topics, backlog=2)


async def test_stats_of_a_consumer_are_what_is_known_of_it(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.open_producer()
    client.subscribe(consumer_name="c")
    await settle()
    client.publish(b"a", b"b", b"c")
    client.say("flow", consumer_id=1, messagePermits=2)
    await settle()
    client.ask("consumerStats", consumer_id=1)
    await settle()
    (stats,) = client.all_of("consumerStatsResponse")
    assert (stats.type, stats.msgBacklog, stats.availablePermits) == ("Exclusive", 3, 0)
    assert (stats.address, stats.consumerName) == ("/10.0.0.1:4711", "c")
    assert stats.connectedSince.endswith("Z")
