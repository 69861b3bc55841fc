"""Proves that a producer of a partitioned topic publishes to all its partitions, old and new."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.producers.stored import bodies

from geminga import (
    Batching,
    Client,
    ClientError,
    Closed,
    MessageId,
    Producer,
    ProducerBusy,
    ProducerFenced,
    RoutedMessage,
    ServiceNotReady,
    TopicNotFound,
)
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

TOPIC = "persistent://public/default/orders"


class Partitioned:
    """A fake broker whose topics have partitions; ``sent`` is how many payloads each got."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.partitions = 3
        self.refused: str | None = None
        self._topics: dict[int, str] = {}
        self.sent: Counter[int] = Counter()
        broker.on(BaseCommand.PARTITIONED_METADATA, self._tell)
        broker.on(BaseCommand.PRODUCER, self._accept)
        broker.on(BaseCommand.SEND, self._store)

    @property
    def asked(self) -> list[api.CommandProducer]:
        """What the broker was asked to accept."""
        return [command.producer for command in self.broker.of_type(BaseCommand.PRODUCER)]

    def _tell(self, session: Session, command: BaseCommand, _: bytes) -> None:
        request_id = command.partitionMetadata.request_id
        session.write(answers.encode_partitions(request_id, self.partitions))

    def _accept(self, session: Session, command: BaseCommand, _: bytes) -> None:
        producer = command.producer
        self._topics[producer.producer_id] = producer.topic
        if producer.topic == self.refused:
            session.write(
                answers.encode_error(producer.request_id, api.ProducerBusy, "it is taken")
            )
        else:
            name = producer.producer_name or f"made-up-for-{producer.topic[-1]}"
            session.write(answers.encode_producer_success(producer.request_id, name))

    def _store(self, session: Session, command: BaseCommand, payload: bytes) -> None:
        topic = self._topics[command.send.producer_id]
        self.sent[int(topic.rpartition("-")[2])] += 1
        self.broker.store(session, command, payload)


@pytest.fixture
def partitioned(broker: FakeBroker) -> Partitioned:
    return Partitioned(broker)


async def test_each_partition_gets_a_batch_in_turn(
    client: Client, partitioned: Partitioned
) -> None:
    async with client.producer("orders", batching=Batching(messages_max=10)) as producer:
        assert producer.partitions == 3
        for _ in range(90):
            producer.send_nowait(b"")
    assert partitioned.sent == {0: 3, 1: 3, 2: 3}
    assert {each.topic for each in partitioned.asked} == {
        f"{TOPIC}-partition-{index}" for index in range(3)
    }
    assert len(partitioned.broker.of_type(BaseCommand.CLOSE_PRODUCER)) == 3


@pytest.mark.usefixtures("partitioned")
async def test_ids_name_their_partition(client: Client) -> None:
    producer = await client.producer("orders", router=lambda message, _: int(message.payload))
    ids = [await producer.send(b"%d" % index) for index in (2, 0, 1)]
    assert [message_id.partition for message_id in ids] == [2, 0, 1]


async def test_messages_with_one_key_stay_together(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await client.producer("orders", batching=None)
    for _ in range(5):
        producer.send_nowait(b"", key="key1")
    await producer.flush()
    assert partitioned.sent == {3288498 % 3: 5}


async def test_all_partitions_have_the_name_that_the_first_one_got(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await client.producer("orders")
    assert producer.name == "made-up-for-0"
    assert [each.producer_name for each in partitioned.asked] == [
        "",
        "made-up-for-0",
        "made-up-for-0",
    ]


async def test_a_partition_is_a_topic_without_partitions(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await client.producer("orders-partition-1")
    assert producer.partitions == 0
    assert (await producer.send(b"")).partition == 1
    assert partitioned.broker.of_type(BaseCommand.PARTITIONED_METADATA) == []


async def test_new_partitions_are_noticed(client: Client, partitioned: Partitioned) -> None:
    producer = await client.producer(
        "orders", router=lambda _, partitions: partitions - 1, partitions_refresh_s=5
    )
    assert (await producer.send(b"")).partition == 2
    partitioned.partitions = 5
    partitioned.refused = f"{TOPIC}-partition-4"
    await asyncio.sleep(6)
    assert producer.partitions == 3, "all of the new ones or none"
    partitioned.refused = None
    await until(lambda: producer.partitions == 5)
    assert (await producer.send(b"")).partition == 4
    await producer.close()
    asked = len(partitioned.broker.of_type(BaseCommand.PARTITIONED_METADATA))
    await asyncio.sleep(60)
    assert len(partitioned.broker.of_type(BaseCommand.PARTITIONED_METADATA)) == asked


async def test_a_partition_that_no_broker_takes_leaves_none_open(
    client: Client, partitioned: Partitioned
) -> None:
    partitioned.refused = f"{TOPIC}-partition-2"
    with pytest.raises(ProducerBusy):
        await client.producer("orders")
    await asyncio.sleep(1)
    assert not client._channels._closes


async def test_the_number_of_partitions_is_asked_for_until_it_is_known(
    client: Client, partitioned: Partitioned
) -> None:
    answered: list[int] = []

    def refuse(session: Session, command: BaseCommand, payload: bytes) -> None:
        request_id = command.partitionMetadata.request_id
        answered.append(request_id)
        if len(answered) < 3:
            session.write(answers.encode_error(request_id, api.ServiceNotReady, "moving"))
        else:
            partitioned._tell(session, command, payload)

    partitioned.broker.on(BaseCommand.PARTITIONED_METADATA, refuse)
    assert (await client.producer("orders")).partitions == 3
    partitioned.broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_error(command.partitionMetadata.request_id, api.TopicNotFound, "none")
        ),
    )
    with pytest.raises(TopicNotFound):
        await client.producer("orders")
    partitioned.broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_error(
                command.partitionMetadata.request_id, api.ServiceNotReady, "moving"
            )
        ),
    )
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(ServiceNotReady):
        await client.producer("orders")
    assert 30 <= asyncio.get_running_loop().time() - began_s <= 40


@pytest.mark.usefixtures("partitioned")
async def test_a_producer_is_over_when_all_its_partitions_are(client: Client) -> None:
    def router(message: RoutedMessage, _: int) -> int:
        return int(message.payload)

    producer = await client.producer("orders", router=router)
    producer._parts[1].channel.end(ProducerFenced("ProducerFenced", "another one"))
    await producer.send(b"0")
    await producer.ready()
    with pytest.raises(ProducerFenced):
        await producer.send(b"1")
    for index in (0, 2):
        producer._parts[index].channel.end(Closed("it"))
    for refused in (producer.ready(), producer.send(b"0")):
        with pytest.raises(Closed):
            await refused


async def test_what_a_router_raises_while_messages_wait_for_room_reaches_its_sender(
    client: Client, partitioned: Partitioned
) -> None:
    partitioned.broker.on(BaseCommand.SEND)
    producer = await client.producer(
        "orders", router=lambda message, _: int(message.properties["to"]), pending_messages_max=1
    )
    producer.send_nowait(b"0", properties={"to": "0"})
    refused = asyncio.create_task(producer.send(b"1"))
    behind = asyncio.create_task(producer.send(b"2", properties={"to": "2"}))
    await asyncio.sleep(1)
    partitioned.broker.on(BaseCommand.SEND, partitioned._store)
    partitioned.broker.drop_connections()
    async with asyncio.timeout(60.0):
        with pytest.raises(KeyError, match="to"):
            await refused
        assert (await behind).partition == 2
    assert producer.pending_messages == 0


async def lazy_producer(client: Client) -> Producer[bytes]:
    return await client.producer(
        "orders",
        router=lambda message, _: int(message.properties["to"]),
        lazy_start_partitioned_producers=True,
        partitions_refresh_s=5,
    )


def other_than_first(partitioned: Partitioned) -> str:
    """A partition that was not asked for when the producer was opened."""
    (first,) = partitioned.asked
    return next(index for index in "012" if not first.topic.endswith(index))


async def test_a_lazy_producer_asks_for_a_partition_with_its_first_message(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    other = other_than_first(partitioned)
    assert (producer.partitions, producer.is_connected) == (3, True)
    for number in range(10):
        producer.send_nowait(b"%d" % number, properties={"to": other})
    assert (await producer.send(b"10", properties={"to": other})).partition == int(other)
    assert partitioned.asked[1].topic == f"{TOPIC}-partition-{other}"
    assert partitioned.asked[1].producer_name == producer.name
    assert len(partitioned.asked) == 2
    await producer.close()
    sent = [body for entry in bodies(partitioned.broker) for body in entry]
    assert sent == [b"%d" % number for number in range(11)]
    assert producer.pending_messages == 0


async def test_new_partitions_of_a_lazy_producer_wait_for_messages_too(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    partitioned.partitions = 5
    await until(lambda: producer.partitions == 5)
    assert len(partitioned.asked) == 1
    assert (await producer.send(b"", properties={"to": "4"})).partition == 4


async def test_what_waits_for_a_partition_that_no_broker_takes_fails_and_the_next_tries_again(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    other = other_than_first(partitioned)
    partitioned.refused = f"{TOPIC}-partition-{other}"
    producer.send_nowait(b"", properties={"to": other})
    with pytest.raises(ProducerBusy):
        await producer.send(b"", properties={"to": other})
    assert producer.pending_messages == 0
    with pytest.raises(ProducerBusy) as caught:
        await producer.flush()
    assert caught.value.__notes__ == ["1 messages sent without callbacks were not stored"]
    partitioned.refused = None
    assert (await producer.send(b"", properties={"to": other})).partition == int(other)


async def test_closing_waits_for_what_was_sent_to_a_partition_that_is_being_started(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    producer.send_nowait(b"", properties={"to": other_than_first(partitioned)})
    await producer.close()
    assert partitioned.sent.total() == 1
    with pytest.raises(Closed):
        await producer.send(b"", properties={"to": "0"})
    await asyncio.sleep(1)
    assert not client._channels._closes


async def test_what_waits_for_a_silent_broker_fails_when_the_client_is_closed(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    partitioned.broker.on(BaseCommand.PRODUCER, lambda _, __, ___: None)
    errors: list[ClientError | None] = []
    to = {"to": other_than_first(partitioned)}

    def note(_: MessageId | None, error: ClientError | None) -> None:
        errors.append(error)

    producer.send_nowait(b"", note, properties=to)
    await client.close()
    (error,) = errors
    assert isinstance(error, Closed)


@pytest.mark.parametrize("is_closed_before", [True, False])
async def test_what_a_client_that_closes_did_not_ask_a_broker_for_hears_of_that(
    client: Client, partitioned: Partitioned, *, is_closed_before: bool
) -> None:
    producer = await lazy_producer(client)
    to = {"to": other_than_first(partitioned)}
    if is_closed_before:
        await client.close()
    sending = asyncio.ensure_future(producer.send(b"", properties=to))
    if not is_closed_before:
        await asyncio.gather(client.close(), asyncio.sleep(0))
    async with asyncio.timeout(60.0):
        with pytest.raises(Closed):
            await sending
    assert producer.pending_messages == 0


async def test_what_is_sent_because_something_failed_asks_for_the_partition_again(
    client: Client, partitioned: Partitioned
) -> None:
    producer = await lazy_producer(client)
    other = other_than_first(partitioned)
    to = {"to": other}
    partitioned.refused = f"{TOPIC}-partition-{other}"
    stored: list[MessageId | None] = []

    def failed(_: MessageId | None, error: ClientError | None) -> None:
        assert isinstance(error, ProducerBusy)
        partitioned.refused = None
        producer.send_nowait(
            b"again", lambda message_id, _: stored.append(message_id), properties=to
        )

    producer.send_nowait(b"", failed, properties=to)
    await asyncio.sleep(60)
    assert [each and each.partition for each in stored] == [int(other)]


@pytest.mark.parametrize("wrong", [{"properties": {"a": 1}}, {"deliver_at": "soon"}])
async def test_what_cannot_be_encoded_is_refused_before_its_partition_is_started(
    client: Client, partitioned: Partitioned, wrong: dict[str, Any]
) -> None:
    producer = await lazy_producer(client)
    other = other_than_first(partitioned)
    options = {**wrong, "properties": {"to": other} | wrong.get("properties", {})}
    producer.send_nowait(b"0", properties={"to": other})
    with pytest.raises(TypeError):
        producer.send_nowait(b"1", **options)
    assert (await producer.send(b"2", properties={"to": other})).partition == int(other)
    await producer.close()
    assert [body for entry in bodies(partitioned.broker) for body in entry] == [b"0", b"2"]
    assert producer.pending_messages == 0


async def test_a_lazy_producer_that_wants_to_be_alone_asks_for_all_partitions(
    client: Client, partitioned: Partitioned
) -> None:
    await client.producer("orders", access_mode="exclusive", lazy_start_partitioned_producers=True)
    assert len(partitioned.asked) == 3
