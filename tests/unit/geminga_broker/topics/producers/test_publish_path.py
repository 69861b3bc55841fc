"""Proves that what a topic takes follows its policies, while producers are connected."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of
from tests.unit.geminga_broker.managed_ledger.stand_ins import MemoryLedgers

from geminga_broker.errors import InvalidRequest, ProducerBusy
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.cluster.namespaces import Policies, PublishRate

NAME = TopicName.parse("persistent://t/n/topic")


class Client:
    """One producer, and what became of it."""

    def __init__(
        self,
        name: str,
        *,
        is_encrypting: bool = False,
        access_mode: AccessMode = AccessMode.SHARED,
    ) -> None:
        self.session = NotedSession()
        self.is_closed = False
        self.producer = producer_of(
            self.session,
            name,
            access_mode=access_mode,
            is_encrypting=is_encrypting,
            on_closed=self.note_closed,
        )

    def note_closed(self, _: Producer) -> None:
        self.is_closed = True

    def publish(self, *payloads: bytes) -> None:
        items = [(payload, 1, self.producer, at, 0) for at, payload in enumerate(payloads)]
        self.producer.append_all(items)


def payload(*, is_encrypted: bool = False) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if is_encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    return encode_payload(metadata, b"body")


@pytest.fixture
async def topic(topics: TopicDirectory) -> Topic:
    """The topic under test."""
    return await topics.get(NAME, create=True)


def follow(topics: TopicDirectory, policies: Policies) -> None:
    topics.apply_policies(NAME.namespace, policies)


async def test_without_policies_messages_go_straight_to_the_log(topic: Topic) -> None:
    client = Client("p")
    await topic.publishing.connect(client.producer)
    assert client.producer.append_all == topic.publishing.append, (
        "the log does not ask whose they are"
    )


async def test_producers_over_the_limit_are_refused_and_those_that_come_back_are_not(
    topics: TopicDirectory, topic: Topic
) -> None:
    follow(topics, Policies(producers_per_topic_max=1))
    first = Client("a")
    await topic.publishing.connect(first.producer)
    with pytest.raises(ProducerBusy, match=r"Topic '.*topic' reached max producers limit"):
        await topic.publishing.connect(Client("b").producer)
    first.session.answers = False
    await topic.publishing.connect(Client("a").producer)
    follow(topics, Policies(producers_per_topic_max=0))
    await topic.publishing.connect(Client("b").producer)


async def test_where_encryption_is_required_nothing_else_is_taken(
    topics: TopicDirectory, topic: Topic, ledgers: MemoryLedgers
) -> None:
    plain, encrypting = Client("plain"), Client("encrypting", is_encrypting=True)
    for client in (plain, encrypting):
        await topic.publishing.connect(client.producer)
    follow(topics, Policies(encryption_required=True))
    assert (plain.is_closed, encrypting.is_closed) == (True, False)
    assert encrypting.producer.append_all != topic.publishing.append, (
        "what is refused is refused to one"
    )
    with pytest.raises(InvalidRequest, match="Encryption is required in persistent://t/n/topic"):
        await topic.publishing.connect(Client("plain").producer)
    encrypting.publish(payload(), payload(is_encrypted=True), b"garbage")
    await asyncio.sleep(0.001)
    errors = [
        (command.send_error.error, command.send_error.message)
        for command in encrypting.session.commands()
        if command.type == api.BaseCommand.SEND_ERROR
    ]
    assert errors == [(api.MetadataError, "Messages must be encrypted")] * 2
    assert ledgers.entries[0] == [payload(is_encrypted=True)]


@pytest.mark.parametrize("name", [NAME, TopicName.parse("non-persistent://t/n/topic")])
async def test_a_producer_that_waited_follows_the_policies_that_came_meanwhile(
    topics: TopicDirectory, name: TopicName
) -> None:
    topic = await topics.get(name, create=True)
    present = Client("present")
    waiting = Client("waiting", is_encrypting=True, access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    for client in (present, waiting):
        await topic.publishing.connect(client.producer)
    follow(topics, Policies(encryption_required=True))
    await asyncio.sleep(0.001)
    assert not waiting.producer.is_waiting
    waiting.publish(payload())
    (command,) = waiting.session.commands()
    assert command.send_error.message == "Messages must be encrypted"


async def test_a_client_that_publishes_too_fast_is_not_read_until_the_limit_is_kept_or_lifted(
    topics: TopicDirectory, topic: Topic
) -> None:
    client = Client("p")
    await topic.publishing.connect(client.producer)
    follow(topics, Policies(publish_max_message_rate={"standalone": PublishRate(messages=2)}))
    client.publish(payload(), payload())
    assert client.session.throttles == []
    client.publish(payload(), payload())
    (wait_s,) = client.session.throttles
    now_s = asyncio.get_running_loop().time()
    follow(topics, Policies(publish_max_message_rate={"elsewhere": PublishRate(messages=2)}))
    assert wait_s(now_s) == 0
    assert client.producer.append_all == topic.publishing.append
