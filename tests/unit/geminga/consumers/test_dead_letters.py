"""Proves that messages which nothing can be done with are published to the topics, and with the
properties, that upstream's clients know, and are acknowledged only then."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from tests.unit.geminga.fake_broker import (
    MAX_MESSAGE_BYTES,
    FakeBroker,
    Session,
    batch_payload,
    metadata,
    until,
)
from tests.unit.geminga.producers.stored import entries

from geminga import Client, Consumer, DeadLetterPolicy, ProducerOptions, StringSchema
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.messages.payload import encode_payload

ORDERS = "persistent://public/default/orders"
TWICE = DeadLetterPolicy(2)
RETRYING = DeadLetterPolicy(2, retry_letters=True)
REDELIVER = BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES


async def open_consumer(client: Client, policy: DeadLetterPolicy) -> Consumer[bytes]:
    return await client.consumer(
        "orders", "s", type="shared", nack_delay_s=1, ack_timeout_s=30, dead_letters=policy
    )


def orders_have_partitions(broker: FakeBroker) -> None:
    """From now on they have two, and no other topic has any."""

    def answer(session: Session, command: BaseCommand, _: bytes) -> None:
        asked = command.partitionMetadata
        count = 2 if asked.topic == ORDERS else 0
        session.write(answers.encode_partitions(asked.request_id, count))

    broker.on(BaseCommand.PARTITIONED_METADATA, answer)


def consumer_of(broker: FakeBroker, topic: str) -> int:
    """The id of the consumer that subscribed to a topic."""
    subscribed = [command.subscribe for command in broker.of_type(BaseCommand.SUBSCRIBE)]
    return next(each.consumer_id for each in subscribed if each.topic == topic)


def posted(broker: FakeBroker) -> list[tuple[bytes, dict[str, str]]]:
    """The data and properties of what was published."""
    return [
        (stored.body, {pair.key: pair.value for pair in stored.said.properties})
        for entry in entries(broker)
        for stored in entry
    ]


def published_to(broker: FakeBroker) -> list[str]:
    return [command.producer.topic for command in broker.of_type(BaseCommand.PRODUCER)]


async def test_a_message_that_is_refused_too_often_becomes_a_dead_letter(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, TWICE)
    for count in range(3):
        broker.deliver(7, b"bad", redelivery_count=count)
        consumer.nack(await consumer.receive())
        await asyncio.sleep(2)
    assert len(broker.of_type(REDELIVER)) == 2
    assert published_to(broker) == [f"{ORDERS}-s-DLQ"]
    origin = {"ORIGIN_MESSAGE_ID": "3:7:-1", "ORIGIN_MESSAGE_IDY_TIME": "3:7:-1"}
    where = {"REAL_TOPIC": ORDERS, "REAL_SUBSCRIPTION": "s"}
    assert posted(broker) == [(b"bad", {**origin, **where})]
    assert broker.acked == [7]


async def test_a_dead_letter_keeps_key_properties_and_event_time(
    client: Client, broker: FakeBroker
) -> None:
    said = metadata()
    said.partition_key, said.ordering_key, said.event_time = "k", b"o", 9
    said.properties.add(key="a", value="b")
    said.properties.add(key="REAL_TOPIC", value="where it was first")
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, payload=encode_payload(said, b"bad"), redelivery_count=2)
    consumer.nack(await consumer.receive())
    await until(lambda: bool(broker.stored))
    ((letter,),) = entries(broker)
    assert (letter.said.partition_key, letter.said.ordering_key) == ("k", b"o")
    assert letter.said.event_time == 9
    properties = posted(broker)[0][1]
    assert (properties["a"], properties["REAL_TOPIC"]) == ("b", "where it was first")


async def test_a_message_that_was_delivered_too_often_is_dead_when_it_comes(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, DeadLetterPolicy(2, "graveyard"))
    broker.deliver(7, b"bad", redelivery_count=3)
    broker.deliver(8, b"good")
    assert (await consumer.receive()).data == b"good"
    await until(lambda: broker.acked == [7])
    assert published_to(broker) == ["persistent://public/default/graveyard"]


async def test_messages_that_are_dead_when_they_come_make_room_for_others(
    client: Client, broker: FakeBroker
) -> None:
    await client.consumer(
        "orders", "s", type="shared", receiver_queue_size=4, dead_letters=DeadLetterPolicy(2)
    )
    await until(lambda: broker.permits == 4)
    for entry_id in range(4):
        broker.deliver(entry_id, b"bad", redelivery_count=3)
    await until(lambda: broker.permits == 4 + 4)


async def test_a_message_that_is_not_acknowledged_in_time_becomes_a_dead_letter(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, b"bad", redelivery_count=2)
    await consumer.receive()
    await asyncio.sleep(40)
    assert broker.acked == [7]


async def test_what_is_acknowledged_becomes_no_dead_letter(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, payload=batch_payload(b"a", b"b"), redelivery_count=2)
    first, second = [await consumer.receive() for _ in range(2)]
    consumer.ack(first)
    consumer.nack(second)
    await until(lambda: broker.acked == [7])
    assert [body for body, _ in posted(broker)] == [b"b"]


async def test_a_message_whose_letter_is_not_stored_is_not_acknowledged(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_error(command.producer.request_id, api.AuthorizationError, "no")
        ),
    )
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, b"bad", redelivery_count=2)
    consumer.nack(await consumer.receive())
    await until(lambda: bool(broker.of_type(REDELIVER)))
    assert broker.acked == []


async def test_the_subscription_that_keeps_dead_letters_is_made_before_the_first(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, DeadLetterPolicy(2, initial_subscription="keep"))
    broker.deliver(7, b"bad", redelivery_count=2)
    consumer.nack(await consumer.receive())
    await until(lambda: bool(broker.stored))
    kept = broker.of_type(BaseCommand.SUBSCRIBE)[-1].subscribe
    assert (kept.topic, kept.subscription) == (f"{ORDERS}-s-DLQ", "keep")
    assert kept.initialPosition == api.CommandSubscribe.Earliest


async def test_a_message_can_be_consumed_again_later_by_the_retry_topic(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, RETRYING)
    assert consumer.topics == [ORDERS, f"{ORDERS}-s-RETRY"]
    broker.deliver(7, b"later")
    await consumer.reconsume_later(await consumer.receive(), 60, properties={"why": "busy"})
    assert published_to(broker) == [f"{ORDERS}-s-RETRY"]
    ((letter,),) = entries(broker)
    properties = posted(broker)[0][1]
    assert (properties["RECONSUMETIMES"], properties["DELAY_TIME"]) == ("1", "60000")
    assert (properties["REAL_TOPIC"], properties["why"]) == (ORDERS, "busy")
    assert letter.body == b"later"
    await until(lambda: broker.acked == [7])


async def test_after_too_many_retries_the_message_is_dead(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, RETRYING)
    said = metadata()
    said.properties.add(key="RECONSUMETIMES", value="2")
    broker.deliver(7, payload=encode_payload(said, b"bad"))
    await consumer.reconsume_later(await consumer.receive(), 60)
    assert published_to(broker) == [f"{ORDERS}-s-DLQ"]
    assert posted(broker)[0][1]["RECONSUMETIMES"] == "3"


async def test_without_a_retry_topic_nothing_is_consumed_later(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, b"later")
    with pytest.raises(ValueError, match="retry_letters"):
        await consumer.reconsume_later(await consumer.receive(), 60)


async def test_closing_ends_the_way_to_the_dead_letter_topic(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await open_consumer(client, TWICE)
    broker.deliver(7, b"bad", redelivery_count=2)
    consumer.nack(await consumer.receive())
    await until(lambda: bool(broker.stored))
    await consumer.close()
    assert len(broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 1


async def test_dead_letters_need_a_subscription_that_counts_deliveries(client: Client) -> None:
    with pytest.raises(ValueError, match="shared"):
        client.consumer("orders", "s", dead_letters=TWICE)


async def test_each_partition_has_a_dead_letter_topic_of_its_own(
    client: Client, broker: FakeBroker
) -> None:
    orders_have_partitions(broker)
    consumer = await open_consumer(client, TWICE)
    consumer_id = consumer_of(broker, f"{ORDERS}-partition-1")
    broker.deliver(7, b"bad", redelivery_count=3, consumer_id=consumer_id)
    await until(lambda: bool(broker.stored))
    assert published_to(broker) == [f"{ORDERS}-partition-1-s-DLQ"]
    assert posted(broker)[0][1]["REAL_TOPIC"] == f"{ORDERS}-partition-1"
    await consumer.close()


async def test_with_retry_letters_all_topics_share_those_of_the_first_by_name(
    client: Client, broker: FakeBroker
) -> None:
    orders_have_partitions(broker)
    consumer = await client.consumer(
        ["returns", "orders"], "s", type="shared", dead_letters=RETRYING
    )
    broker.deliver(7, b"later", consumer_id=consumer_of(broker, f"{ORDERS}-partition-1"))
    await consumer.reconsume_later(await consumer.receive(), 60)
    assert published_to(broker) == [f"{ORDERS}-s-RETRY"]
    assert posted(broker)[0][1]["REAL_TOPIC"] == ORDERS


async def test_letters_have_the_schema_of_their_messages(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(
        "orders", "s", type="shared", dead_letters=TWICE, schema=StringSchema()
    )
    broker.deliver(7, b"bad", redelivery_count=3)
    await until(lambda: bool(broker.stored))
    assert broker.of_type(BaseCommand.PRODUCER)[0].producer.schema.type == api.Schema.String
    await consumer.close()


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "retry"])
@pytest.mark.parametrize("options", [None, ProducerOptions(name="again")], ids=["bare", "named"])
async def test_letters_leave_alone_and_large_ones_in_chunks(
    client: Client, broker: FakeBroker, options: ProducerOptions | None, *, is_dead: bool
) -> None:
    policy = DeadLetterPolicy(
        2, retry_letters=True, dead_letter_producer=options, retry_letter_producer=options
    )
    consumer = await open_consumer(client, policy)
    large = bytes(MAX_MESSAGE_BYTES * 2)
    said = metadata()
    said.compression, said.uncompressed_size = api.ZLIB, len(large)
    payload = encode_payload(said, zlib.compress(large))
    broker.deliver(7, payload=payload, redelivery_count=3 if is_dead else 0)
    if is_dead:
        await until(lambda: broker.acked == [7])
    else:
        await consumer.reconsume_later(await consumer.receive(), 60)
    sizes = [len(stored.body) for entry in entries(broker) for stored in entry]
    assert len(sizes) == 3
    assert sum(sizes) == len(large)


async def test_letters_are_published_as_the_policy_says(client: Client, broker: FakeBroker) -> None:
    policy = DeadLetterPolicy(
        2,
        retry_letters=True,
        dead_letter_producer={"name": "undertaker"},
        retry_letter_producer={"name": "again"},
    )
    consumer = await open_consumer(client, policy)
    broker.deliver(7, b"bad", redelivery_count=3)
    await until(lambda: bool(broker.stored))
    broker.deliver(8, b"later")
    await consumer.reconsume_later(await consumer.receive(), 60)
    names = [each.producer.producer_name for each in broker.of_type(BaseCommand.PRODUCER)]
    assert names == ["undertaker", "again"]
