"""Proves that messages are received in order and acknowledged, whatever becomes of connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, batch_payload, until

import geminga.consumers.topic_consumer
from geminga import (
    EARLIEST,
    LATEST,
    BrokerFailed,
    Client,
    Closed,
    ConsumerOptions,
    InitialPositionName,
    KeySharedPolicy,
    MessageId,
    SchemaInfo,
    TopicNotFound,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.messages.integers import signed

SHARED = ConsumerOptions(type="shared")


async def test_messages_are_received_in_the_order_of_their_coming(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    for entry_id in range(3):
        broker.deliver(entry_id, b"%d" % entry_id)
    messages = [await consumer.receive() for _ in range(3)]
    assert [message.data for message in messages] == [b"0", b"1", b"2"]
    assert messages[2].id == MessageId(LEDGER, 2)
    assert messages[2].topic == "persistent://public/default/orders"


async def test_a_consumer_says_who_it_is(client: Client, broker: FakeBroker) -> None:
    options = ConsumerOptions(
        type="key_shared",
        name="till",
        initial_position="earliest",
        properties={"app": "shop"},
        priority_level=2,
        receiver_queue_size=10,
    )
    await client.consumer("orders", "billing", **options)
    asked = broker.of_type(BaseCommand.SUBSCRIBE)[0].subscribe
    assert (asked.topic, asked.subscription) == ("persistent://public/default/orders", "billing")
    assert asked.subType == api.CommandSubscribe.Key_Shared
    assert asked.initialPosition == api.CommandSubscribe.Earliest
    assert (asked.consumer_name, asked.priority_level) == ("till", 2)
    assert [(pair.key, pair.value) for pair in asked.metadata] == [("app", "shop")]
    await until(lambda: broker.permits == 10)


async def test_a_consumer_tells_its_schema_and_gives_values(
    client: Client, broker: FakeBroker
) -> None:
    class Number:
        schema_info = SchemaInfo(SchemaType.INT32, "INT32", b"", {"a": "b"})

        def encode(self, value: int, /) -> bytes:
            return b"%d" % value

        def decode(self, payload: bytes, /) -> int:
            return int(payload)

    consumer = await client.consumer("orders", "s", schema=Number())
    told = broker.of_type(BaseCommand.SUBSCRIBE)[0].subscribe.schema
    assert (told.type, told.name, told.properties[0].value) == (api.Schema.Int32, "INT32", "b")
    broker.deliver(0, b"41")
    message = await consumer.receive()
    assert message.value + 1 == 42


async def test_a_key_shared_consumer_says_which_keys_it_wants(
    client: Client, broker: FakeBroker
) -> None:
    policy = KeySharedPolicy(ranges=[(0, 9)], allow_out_of_order=True)
    await client.consumer("orders", "s", type="key_shared", key_shared=policy)
    told = broker.of_type(BaseCommand.SUBSCRIBE)[0].subscribe.keySharedMeta
    assert told.keySharedMode == api.STICKY
    assert [(each.start, each.end) for each in told.hashRanges] == [(0, 9)]
    assert told.allowOutOfOrderDelivery
    with pytest.raises(ValueError, match="range"):
        KeySharedPolicy(ranges=[(9, 65536)])


@pytest.mark.parametrize(
    "options",
    [
        ConsumerOptions(receiver_queue_size=0),
        ConsumerOptions(ack_group_max=0),
        ConsumerOptions(ack_timeout_s=0),
        ConsumerOptions(nack_multiplier=0.5),
    ],
)
async def test_options_that_cannot_be_are_refused_at_once(
    client: Client, options: ConsumerOptions
) -> None:
    with pytest.raises(ValueError, match=r"least|more than"):
        client.consumer("orders", "s", **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"type": "sharde"}, "'sharde' is no type: exclusive, shared, failover, key_shared"),
        ({"initial_position": "begin"}, "'begin' is no initial_position: latest, earliest"),
    ],
)
async def test_an_unknown_word_is_answered_with_the_words_there_are(
    client: Client, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        client.consumer("orders", "s", **options)


async def test_receiving_waits_for_a_message(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.sleep(100)
    assert not receiving.done()
    broker.deliver(0, b"at last")
    assert (await receiving).data == b"at last"


# ---- refusing


async def test_a_refused_message_is_asked_for_again_later(
    client: Client, broker: FakeBroker
) -> None:
    options = ConsumerOptions(type="shared", nack_delay_s=5)
    consumer = await client.consumer("orders", "billing", **options)
    broker.deliver(0)
    broker.deliver(1, payload=batch_payload(b"a", b"b"))
    for _ in range(3):
        consumer.nack(await consumer.receive())
    await asyncio.sleep(4.9)
    assert not broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    await asyncio.sleep(0.2)
    (redeliver,) = broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    ids = redeliver.redeliverUnacknowledgedMessages.message_ids
    assert [message_id.entryId for message_id in ids] == [0, 1]
    broker.deliver(0, redelivery_count=1)
    assert (await consumer.receive()).redelivery_count == 1


async def test_a_message_that_is_acknowledged_after_all_is_not_asked_for(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", **SHARED)
    broker.deliver(0)
    message = await consumer.receive()
    consumer.nack(message)
    consumer.ack(message)
    await asyncio.sleep(100)
    assert not broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)


async def test_an_unreadable_message_is_said_and_asked_for_again(
    client: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    options = ConsumerOptions(receiver_queue_size=1, nack_delay_s=5)
    consumer = await client.consumer("orders", "billing", **options)
    broker.deliver(0, payload=b"\x0e\x01\0\0\0\0damaged")
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "unreadable message"
    ]
    broker.deliver(0, b"fine")
    assert (await consumer.receive()).data == b"fine"
    await until(lambda: broker.permits == 3)


async def test_everything_unacknowledged_can_be_asked_for(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", receiver_queue_size=4)
    for entry_id in range(4):
        broker.deliver(entry_id)
    await consumer.receive()
    consumer.redeliver_unacknowledged()
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    await until(lambda: broker.permits == 4 + 4)
    broker.deliver(0, b"again")
    assert (await consumer.receive()).data == b"again"


# ---- reconnecting


async def test_what_was_fetched_and_not_received_comes_once_after_a_reconnection(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing", receiver_queue_size=10)
    broker.deliver(0, b"old")
    broker.deliver(1, b"old")
    await consumer.receive()
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await until(lambda: broker.permits == 20)
    broker.deliver(1, b"new")
    assert (await consumer.receive()).data == b"new"


async def test_a_broker_that_sends_without_end_is_left(
    client: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geminga.consumers.topic_consumer, "OVERSHOOT_MESSAGES_MAX", 5)
    consumer = await client.consumer("orders", "s", receiver_queue_size=10)
    for entry_id in range(30):
        broker.deliver(entry_id, b"too many")
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1
    await until(lambda: broker.permits == 20)
    broker.deliver(0, b"as asked")
    assert (await consumer.receive()).data == b"as asked"


# ---- the subscription


async def test_after_seeking_nothing_old_is_received(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(5, b"old")
    await consumer.receive()
    broker.deliver(6, b"old")
    await consumer.seek(MessageId(LEDGER, 2))
    (asked,) = broker.of_type(BaseCommand.SEEK)
    assert asked.seek.message_id.entryId == 2
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await until(lambda: consumer.is_connected)
    broker.deliver(2, b"new")
    assert (await consumer.receive()).data == b"new"


async def test_what_comes_while_seeking_is_dropped(client: Client, broker: FakeBroker) -> None:
    broker.on(BaseCommand.SEEK)
    consumer = await client.consumer("orders", "s", receiver_queue_size=2)
    seeking = asyncio.create_task(consumer.seek(1_700_000_000_000))
    await until(lambda: bool(broker.of_type(BaseCommand.SEEK)))
    asked = broker.of_type(BaseCommand.SEEK)[0].seek
    assert asked.message_publish_time == 1_700_000_000_000
    broker.deliver(9, b"old")
    # A broker that need not close the consumer goes on with the same permits.
    broker.session.write(answers.encode_success(asked.request_id))
    await seeking
    broker.deliver(1, b"new")
    assert (await consumer.receive()).data == b"new"
    await until(lambda: broker.permits == 4)


async def test_what_comes_after_a_seek_counts_even_before_its_answer(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(
            answers.encode_close_consumer(command.seek.consumer_id)
        ),
    )
    consumer = await client.consumer("orders", "s")
    broker.deliver(8, b"old")
    old = await consumer.receive()
    broker.deliver(9, b"old")
    seeking = asyncio.create_task(consumer.seek(MessageId(LEDGER, 2)))
    await until(lambda: not consumer.is_connected)
    consumer.ack(old)
    await until(lambda: consumer.is_connected)
    broker.deliver(2, b"new")
    await asyncio.sleep(1)
    asked = broker.of_type(BaseCommand.SEEK)[0].seek
    broker.session.write(answers.encode_success(asked.request_id))
    await seeking
    broker.deliver(3, b"newer")
    assert [(await consumer.receive()).data for _ in range(2)] == [b"new", b"newer"]
    assert broker.acked == []


async def test_a_seek_that_failed_leaves_everything_as_it_was(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.SEEK,
        lambda session, command, _: session.write(
            answers.encode_error(command.seek.request_id, api.MetadataError, "ill")
        ),
    )
    consumer = await client.consumer("orders", "billing")
    with pytest.raises(BrokerFailed):
        await consumer.seek(EARLIEST)
    asked = broker.of_type(BaseCommand.SEEK)[0].seek.message_id
    assert (asked.ledgerId, asked.entryId) == (2**64 - 1, 2**64 - 1)
    broker.deliver(0, b"one")
    assert (await consumer.receive()).data == b"one"


async def test_unsubscribing_is_the_end(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    await consumer.unsubscribe()
    with pytest.raises(Closed):
        await consumer.receive()
    await asyncio.sleep(60)
    assert len(broker.of_type(BaseCommand.SUBSCRIBE)) == 1


async def test_a_failover_consumer_is_told_when_its_turn_comes(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", type="failover")
    assert not consumer.is_active
    broker.session.write(answers.encode_active_consumer_change(0, is_active=True))
    await until(lambda: consumer.is_active)
    assert consumer.activations == 1
    (topic,) = consumer.topics
    assert consumer.is_active_in(topic)
    assert not consumer.is_active_in(f"{topic}-partition-0")


# ---- ends


async def test_closing_sends_the_last_acks_and_leaves(client: Client, broker: FakeBroker) -> None:
    async with await client.consumer("orders", "billing") as consumer:
        broker.deliver(0)
        consumer.ack(await consumer.receive())
    assert broker.acked == [0]
    assert [command.type for command in broker.received][-2:] == [
        BaseCommand.ACK,
        BaseCommand.CLOSE_CONSUMER,
    ]
    with pytest.raises(Closed):
        await consumer.receive()
    with pytest.raises(Closed):
        consumer.ack(MessageId(LEDGER, 0))
    await consumer.close()


async def test_iterating_ends_when_the_consumer_is_closed(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.deliver(0, b"0")
    broker.deliver(1, b"1")

    async def read() -> list[bytes]:
        return [message.data async for message in consumer]

    reading = asyncio.create_task(read())
    await asyncio.sleep(5)
    await consumer.close()
    assert await reading == [b"0", b"1"]


async def test_a_topic_that_is_gone_ends_its_consumer(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer("orders", "billing")
    broker.on(
        BaseCommand.SUBSCRIBE,
        lambda session, command, _: session.write(
            answers.encode_error(command.subscribe.request_id, api.TopicNotFound, "deleted")
        ),
    )
    broker.session.write(answers.encode_close_consumer(0))
    with pytest.raises(TopicNotFound):
        await consumer.receive()


@pytest.mark.parametrize(
    ("initial_position", "start"), [("earliest", EARLIEST), ("latest", LATEST)], ids=str
)
async def test_a_subscription_that_is_not_durable_begins_where_its_consumer_says(
    client: Client,
    broker: FakeBroker,
    initial_position: InitialPositionName,
    start: MessageId,
) -> None:
    await client.consumer("orders", "s", durable=False, initial_position=initial_position)
    (command,) = broker.of_type(BaseCommand.SUBSCRIBE)
    told = command.subscribe
    assert (told.subscription, told.durable) == ("s", False)
    assert signed(told.start_message_id.entryId) == start.entry_id


async def test_a_subscription_that_is_not_durable_goes_on_behind_what_was_received_last(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", type="shared", durable=False, nack_delay_s=1)
    for entry_id in (7, 8):
        broker.deliver(entry_id)
        message = await consumer.receive()
    consumer.nack(message)
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    broker.deliver(7)
    broker.deliver(8)
    again = [(await consumer.receive()).id.entry_id for _ in range(2)]
    assert again == [7, 8], "what is delivered again is no repeat, as it is to a reader"
    assert broker.acked == []
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    assert broker.of_type(BaseCommand.SUBSCRIBE)[1].subscribe.start_message_id.entryId == 8
