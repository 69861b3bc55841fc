"""Proves that a consumer of several topics receives all of them, in turns and within its bounds."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, Session, until

from geminga import (
    EARLIEST,
    BrokerFailed,
    Client,
    Closed,
    MessageId,
    NotAcknowledgeable,
    TopicNotFound,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

PREFIX = "persistent://public/default/"


def subscribed(broker: FakeBroker) -> dict[str, int]:
    """The topics that were subscribed to, without their prefix, and the ids of their consumers."""
    return {
        command.subscribe.topic.removeprefix(PREFIX): command.subscribe.consumer_id
        for command in broker.of_type(BaseCommand.SUBSCRIBE)
    }


def has_partitions(broker: FakeBroker, count: int) -> None:
    """From now on each topic has so many."""
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, count)
        ),
    )


def refuse_topic(broker: FakeBroker, topic: str, error: api.ServerError.ValueType) -> None:
    """From now on nothing may subscribe to this topic."""
    healthy = broker.answers[BaseCommand.SUBSCRIBE]

    def answer(session: Session, command: BaseCommand, payload: bytes) -> None:
        if command.subscribe.topic.removeprefix(PREFIX) == topic:
            session.write(answers.encode_error(command.subscribe.request_id, error, "no"))
        else:
            healthy(session, command, payload)

    broker.on(BaseCommand.SUBSCRIBE, answer)


async def test_topics_with_messages_take_turns(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(["one", "two", "one"], "s")
    assert consumer.topics == [f"{PREFIX}one", f"{PREFIX}two"]
    ids = subscribed(broker)
    for entry_id in range(4):
        broker.deliver(entry_id, b"one", consumer_id=ids["one"])
    for entry_id in range(2):
        broker.deliver(entry_id, b"two", consumer_id=ids["two"])
    await asyncio.sleep(1)
    came = [(await consumer.receive()).data for _ in range(6)]
    assert came == [b"one", b"two", b"one", b"two", b"one", b"one"]


async def test_all_topics_together_fetch_no_more_than_the_queue_holds(
    client: Client, broker: FakeBroker
) -> None:
    topics = [f"t{number}" for number in range(5)]
    await client.consumer(topics, "s", receiver_queue_size=12)
    await until(lambda: broker.permits == 5 * 2)


async def test_each_topic_fetches_one_message_at_least(client: Client, broker: FakeBroker) -> None:
    await client.consumer([f"t{number}" for number in range(5)], "s", receiver_queue_size=2)
    await until(lambda: broker.permits == 5)


async def test_an_acknowledgement_goes_to_the_topic_of_its_message(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(["one", "two"], "s", type="shared", nack_delay_s=1)
    ids = subscribed(broker)
    broker.deliver(3, consumer_id=ids["one"])
    broker.deliver(3, consumer_id=ids["two"])
    by_topic = {message.topic: message for message in await consumer.receive_many(2)}
    consumer.ack(by_topic[f"{PREFIX}two"])
    consumer.nack(by_topic[f"{PREFIX}one"].id)
    await until(lambda: bool(broker.of_type(BaseCommand.ACK)))
    assert broker.of_type(BaseCommand.ACK)[0].ack.consumer_id == ids["two"]
    await until(lambda: bool(broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)))
    (asked,) = broker.of_type(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    assert asked.redeliverUnacknowledgedMessages.consumer_id == ids["one"]
    with pytest.raises(NotAcknowledgeable, match="unknown topic"):
        consumer.ack(MessageId(LEDGER, 3))


async def test_partitions_are_consumed_each_by_itself(client: Client, broker: FakeBroker) -> None:
    has_partitions(broker, 3)
    consumer = await client.consumer("orders", "s")
    assert subscribed(broker).keys() == {f"orders-partition-{index}" for index in range(3)}
    broker.deliver(7, consumer_id=subscribed(broker)["orders-partition-2"])
    message = await consumer.receive()
    assert (message.topic, message.id.topic) == (f"{PREFIX}orders-partition-2", message.topic)


async def test_new_partitions_are_consumed_from_their_first_message(
    client: Client, broker: FakeBroker
) -> None:
    has_partitions(broker, 1)
    consumer = await client.consumer("orders", "s", topics_refresh_s=10, receiver_queue_size=10)
    await until(lambda: broker.permits == 10)
    has_partitions(broker, 2)
    await until(lambda: len(consumer.topics) == 2)
    newest = broker.of_type(BaseCommand.SUBSCRIBE)[-1].subscribe
    assert newest.topic.endswith("orders-partition-1")
    assert newest.initialPosition == api.CommandSubscribe.Earliest
    await until(lambda: broker.permits == 10 + 5)
    # The old one keeps what it was granted, and is granted again what its share is now.
    for entry_id in range(10):
        broker.deliver(entry_id)
    for _ in range(10):
        await consumer.receive()
    await until(lambda: broker.permits > 10 + 5 + 2)
    assert broker.permits <= 10 + 5 + 5


async def test_a_partition_that_cannot_be_opened_yet_is_tried_again(
    client: Client, broker: FakeBroker
) -> None:
    has_partitions(broker, 1)
    consumer = await client.consumer("orders", "s", topics_refresh_s=10)
    healthy = broker.answers[BaseCommand.SUBSCRIBE]
    refuse_topic(broker, "orders-partition-1", api.AuthorizationError)
    has_partitions(broker, 2)
    await asyncio.sleep(15)
    assert len(consumer.topics) == 1
    broker.on(BaseCommand.SUBSCRIBE, healthy)
    await until(lambda: len(consumer.topics) == 2)


async def test_opening_that_fails_for_one_topic_leaves_none_open(
    client: Client, broker: FakeBroker
) -> None:
    refuse_topic(broker, "two", api.AuthorizationError)
    with pytest.raises(Exception, match="no"):
        await client.consumer(["one", "two", "three"], "s")
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 2)
    assert not client._channels._closes
    assert not client._channels.owners


async def test_the_end_of_one_topic_is_the_end_of_all(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(["one", "two"], "s")
    ids = subscribed(broker)
    refuse_topic(broker, "one", api.TopicNotFound)
    broker.session.write(answers.encode_close_consumer(ids["one"]))
    with pytest.raises(TopicNotFound):
        await consumer.receive()
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1)
    closed = broker.of_type(BaseCommand.CLOSE_CONSUMER)[0].close_consumer
    assert closed.consumer_id == ids["two"]


async def test_a_topic_that_ends_while_another_is_opened_is_why_the_consumer_is_not(
    client: Client, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.SUBSCRIBE]

    def answer(session: Session, command: BaseCommand, payload: bytes) -> None:
        if command.subscribe.topic == f"{PREFIX}one":
            healthy(session, command, payload)

    broker.on(BaseCommand.SUBSCRIBE, answer)

    async def opened() -> None:
        await client.consumer(["one", "two"], "s")

    opening = asyncio.create_task(opened())
    await until(lambda: len(subscribed(broker)) == 2)
    ids = subscribed(broker)
    refuse_topic(broker, "one", api.TopicNotFound)
    broker.session.write(answers.encode_close_consumer(ids["one"]))
    with pytest.raises(TopicNotFound):
        await opening


async def test_a_client_that_closes_ends_consumers_of_several_topics(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(["one", "two"], "s")
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.sleep(1)
    await client.close()
    with pytest.raises(Closed):
        await receiving
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 2


async def test_a_time_is_sought_in_all_topics_and_an_id_in_its_own(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer(["one", "two"], "s")
    await consumer.seek(1_700_000_000_000)
    await consumer.seek(EARLIEST)
    assert len(broker.of_type(BaseCommand.SEEK)) == 4
    await consumer.seek(MessageId(LEDGER, 1, topic=f"{PREFIX}two"))
    assert broker.of_type(BaseCommand.SEEK)[-1].seek.consumer_id == subscribed(broker)["two"]


async def test_a_seek_into_a_batch_leaves_out_what_is_before(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s")
    await consumer.seek(MessageId(LEDGER, 1, 2, batch_size=5))
    assert list(broker.of_type(BaseCommand.SEEK)[0].seek.message_id.ack_set) == [0b11100]


async def test_the_last_ids_are_those_of_each_topic(client: Client) -> None:
    consumer = await client.consumer(["one", "two"], "s")
    ids = await consumer.last_message_ids()
    assert [each.entry_id for each in ids.values()] == [41, 41]
    assert [each.topic for each in ids.values()] == list(ids)
    with pytest.raises(ValueError, match="2 topics"):
        await consumer.last_message_id()


async def test_unsubscribing_is_for_all_topics(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(["one", "two"], "s")
    await consumer.unsubscribe()
    assert len(broker.of_type(BaseCommand.UNSUBSCRIBE)) == 2
    with pytest.raises(Closed):
        await consumer.receive()


async def test_a_paused_consumer_is_granted_nothing_until_it_goes_on(
    client: Client, broker: FakeBroker
) -> None:
    consumer = await client.consumer("orders", "s", receiver_queue_size=4)
    await until(lambda: broker.permits == 4)
    consumer.pause()
    for entry_id in range(4):
        broker.deliver(entry_id)
    for _ in range(4):
        await consumer.receive()
    broker.drop_connections()
    await until(lambda: len(broker.of_type(BaseCommand.SUBSCRIBE)) == 2)
    await asyncio.sleep(1)
    assert broker.permits == 4
    consumer.resume()
    await until(lambda: broker.permits == 8)


async def test_a_topic_is_looked_for_as_long_as_an_operation_may_take(
    client: Client, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.PARTITIONED_METADATA]
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_error(command.partitionMetadata.request_id, api.MetadataError, "ill")
        ),
    )
    opening = asyncio.create_task(client.consumer("orders", "s")._work)
    await asyncio.sleep(10)
    broker.on(BaseCommand.PARTITIONED_METADATA, healthy)
    await opening
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_error(command.partitionMetadata.request_id, api.MetadataError, "ill")
        ),
    )
    with pytest.raises(BrokerFailed):
        await client.consumer("orders", "s")
