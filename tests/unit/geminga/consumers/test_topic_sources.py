"""Proves that a pattern finds the topics that match, those that are made later, and forgets those
that are gone, whether the broker can tell of it or not."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until

from geminga import Client, Closed, Consumer, DeadLetterPolicy
from geminga.consumers.topic_sources import namespace_and_rest
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

PREFIX = "persistent://public/default/"
ORDERS = re.compile("orders-.*")


class Topics:
    """The topics there are; a broker that answers by them."""

    def __init__(self, broker: FakeBroker, *names: str) -> None:
        self.names = list(names)
        self.asked: list[api.CommandGetTopicsOfNamespace] = []
        self._broker = broker
        broker.on(BaseCommand.GET_TOPICS_OF_NAMESPACE, self._answer)
        broker.on(BaseCommand.WATCH_TOPIC_LIST, self._watch)

    def _answer(self, session: Session, command: BaseCommand, _payload: bytes) -> None:
        asked = command.getTopicsOfNamespace
        self.asked.append(asked)
        whole = [f"{PREFIX}{name}" for name in self.names]
        found = str(hash(tuple(whole)))
        is_changed = asked.topics_hash != found
        session.write(
            answers.encode_topics_of_namespace(
                asked.request_id,
                whole if is_changed else (),
                topics_hash=found,
                is_changed=is_changed,
            )
        )

    def _watch(self, session: Session, command: BaseCommand, _payload: bytes) -> None:
        asked = command.watchTopicList
        session.write(
            answers.encode_watch_topic_list_success(asked.request_id, asked.watcher_id, (), "")
        )

    def tell(self) -> None:
        """Tell the watcher that something changed."""
        (watched,) = self._broker.of_type(BaseCommand.WATCH_TOPIC_LIST)
        watcher_id = watched.watchTopicList.watcher_id
        self._broker.session.write(answers.encode_watch_topic_update(watcher_id, (), (), ""))


def local(consumer: Consumer[bytes]) -> list[str]:
    return [name.removeprefix(PREFIX) for name in consumer.topics]


async def test_topics_that_match_as_a_whole_are_consumed(
    client: Client, broker: FakeBroker
) -> None:
    topics = Topics(broker, "orders-a", "orders-b-partition-0", "other", "x-orders-c")
    consumer = await client.consumer(ORDERS, "s")
    assert local(consumer) == ["orders-a", "orders-b"]
    assert topics.asked[0].namespace == "public/default"
    assert topics.asked[0].mode == api.CommandGetTopicsOfNamespace.PERSISTENT
    (watched,) = broker.of_type(BaseCommand.WATCH_TOPIC_LIST)
    assert watched.watchTopicList.topics_pattern == f"{PREFIX}orders-.*"


@pytest.mark.parametrize(
    ("policy", "consumed"),
    [
        (None, ["orders-a", "orders-a-s-DLQ", "orders-a-t-DLQ", "orders-dead"]),
        (DeadLetterPolicy(2), ["orders-a", "orders-a-t-DLQ", "orders-dead"]),
        (DeadLetterPolicy(2, "orders-dead"), ["orders-a", "orders-a-s-DLQ", "orders-a-t-DLQ"]),
    ],
    ids=["no policy", "topics by their names", "one topic"],
)
async def test_a_pattern_leaves_out_where_its_own_dead_letters_go(
    client: Client, broker: FakeBroker, policy: DeadLetterPolicy | None, consumed: list[str]
) -> None:
    Topics(broker, "orders-a", "orders-a-s-DLQ", "orders-a-t-DLQ", "orders-dead")
    consumer = await client.consumer(ORDERS, "s", type="shared", dead_letters=policy)
    assert local(consumer) == consumed


async def test_a_pattern_may_match_nothing_yet(client: Client, broker: FakeBroker) -> None:
    topics = Topics(broker)
    consumer = await client.consumer(ORDERS, "s")
    topics.names.append("orders-a")
    topics.tell()
    await until(lambda: local(consumer) == ["orders-a"])
    broker.deliver(
        0, b"first", consumer_id=broker.of_type(BaseCommand.SUBSCRIBE)[0].subscribe.consumer_id
    )
    assert (await consumer.receive()).data == b"first"
    newest = broker.of_type(BaseCommand.SUBSCRIBE)[-1].subscribe
    assert newest.initialPosition == api.CommandSubscribe.Earliest


async def test_a_topic_that_is_gone_leaves_the_others(client: Client, broker: FakeBroker) -> None:
    topics = Topics(broker, "orders-a", "orders-b")
    consumer = await client.consumer(ORDERS, "s")
    topics.names.remove("orders-a")
    topics.tell()
    await until(lambda: local(consumer) == ["orders-b"])
    assert consumer.is_connected


async def test_a_topic_that_ends_while_another_that_is_gone_is_closed_leaves_the_others(
    client: Client, broker: FakeBroker
) -> None:
    topics = Topics(broker, "orders-a", "orders-b")
    consumer = await client.consumer(ORDERS, "s", topics_refresh_s=10)
    ids = {
        command.subscribe.topic: command.subscribe.consumer_id
        for command in broker.of_type(BaseCommand.SUBSCRIBE)
    }
    subscribe = broker.answers[BaseCommand.SUBSCRIBE]

    def refuse(session: Session, command: BaseCommand, _: bytes) -> None:
        request_id = command.subscribe.request_id
        session.write(answers.encode_error(request_id, api.TopicNotFound, "it is deleted"))

    broker.on(BaseCommand.SUBSCRIBE, refuse)
    broker.on(BaseCommand.CLOSE_CONSUMER)
    topics.names.clear()
    topics.tell()
    await until(lambda: bool(broker.of_type(BaseCommand.CLOSE_CONSUMER)))
    broker.session.write(answers.encode_close_consumer(ids[f"{PREFIX}orders-b"]))
    await until(lambda: not consumer.topics)
    closing = broker.of_type(BaseCommand.CLOSE_CONSUMER)[0].close_consumer
    assert closing.consumer_id == ids[f"{PREFIX}orders-a"]
    broker.on(BaseCommand.SUBSCRIBE, subscribe)
    broker.session.write(answers.encode_success(closing.request_id))
    topics.names.append("orders-c")
    await until(lambda: local(consumer) == ["orders-c"])


async def test_without_a_watcher_the_list_is_asked_for_again(
    client: Client, broker: FakeBroker
) -> None:
    topics = Topics(broker, "orders-a")
    broker.on(
        BaseCommand.WATCH_TOPIC_LIST,
        lambda session, command, _: session.write(
            answers.encode_error(command.watchTopicList.request_id, api.NotAllowedError, "no")
        ),
    )
    consumer = await client.consumer(ORDERS, "s", topics_refresh_s=10)
    topics.names.append("orders-b")
    await until(lambda: local(consumer) == ["orders-a", "orders-b"])
    assert topics.asked[1].topics_hash


async def test_a_lost_connection_is_followed_by_another_look(
    client: Client, broker: FakeBroker
) -> None:
    topics = Topics(broker, "orders-a")
    consumer = await client.consumer(ORDERS, "s", topics_refresh_s=1000)
    topics.names.append("orders-b")
    broker.drop_connections()
    await until(lambda: local(consumer) == ["orders-a", "orders-b"])
    assert len(broker.of_type(BaseCommand.WATCH_TOPIC_LIST)) == 2


async def test_closing_ends_the_watching(client: Client, broker: FakeBroker) -> None:
    Topics(broker, "orders-a")
    async with client.consumer(ORDERS, "s"):
        pass
    assert len(broker.of_type(BaseCommand.WATCH_TOPIC_LIST_CLOSE)) == 1
    assert not client._channels.owners


async def test_partitions_of_what_matches_are_consumed(client: Client, broker: FakeBroker) -> None:
    Topics(broker, "orders-a-partition-0", "orders-a-partition-1")
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, 3)
        ),
    )
    consumer = await client.consumer(ORDERS, "s")
    assert local(consumer) == [f"orders-a-partition-{index}" for index in range(3)]


@pytest.mark.parametrize(
    ("pattern", "namespace", "rest"),
    [
        ("orders-.*", "public/default", "orders-.*"),
        ("a/b/orders-.*", "a/b", "orders-.*"),
        ("persistent://a/b/(x|y)/z", "a/b", "(x|y)/z"),
        ("^persistent://a/b/c", "a/b", "c"),
        ("a/b", "public/default", "a/b"),
    ],
)
def test_a_pattern_names_its_namespace(pattern: str, namespace: str, rest: str) -> None:
    assert namespace_and_rest(pattern) == (namespace, rest)


def test_a_namespace_cannot_be_a_pattern() -> None:
    with pytest.raises(ValueError, match="no namespace"):
        namespace_and_rest("a/(b|c)/orders")


async def test_a_client_that_closes_ends_a_consumer_without_topics(
    client: Client, broker: FakeBroker
) -> None:
    Topics(broker)
    consumer = await client.consumer(ORDERS, "s")
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.sleep(1)
    await client.close()
    with pytest.raises(Closed):
        await receiving


async def test_a_broker_that_answers_one_question_at_a_time_tells_of_several_topics(
    client: Client, broker: FakeBroker
) -> None:
    open_requests: list[int] = []

    def answer(session: Session, command: BaseCommand, _payload: bytes) -> None:
        request_id = command.partitionMetadata.request_id
        if open_requests:
            busy = answers.encode_error(request_id, api.TooManyRequests, "one at a time")
            session.write(busy)
            return
        open_requests.append(request_id)

        def tell() -> None:
            open_requests.clear()
            session.write(answers.encode_partitions(request_id, 2))

        asyncio.get_running_loop().call_later(0.1, tell)

    broker.on(BaseCommand.PARTITIONED_METADATA, answer)
    consumer = await client.consumer(["one", "other", "third"], "s")
    assert len(consumer.topics) == 6
