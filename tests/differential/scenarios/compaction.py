"""Compacted topics: what is left for those who read compacted, and what the status says."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
# Opening a compacted ledger for the first time takes a while.
READ_S = 2.0


async def publish(client: Client, *pairs: tuple[str, str]) -> None:
    """Messages of key and body; an empty body takes the key away, where its size is said: of a
    message without upstream takes the whole entry's."""
    for number, (key, body) in enumerate(pairs):
        client.send(
            1,
            number,
            body,
            partition_key=key,
            null_value=not body,
            uncompressed_size=len(body),
        )
    await client.receipts(len(pairs))


async def compact(world: World) -> None:
    path = world.topic_path("t", "/compaction")
    await world.rest("PUT", path)
    if not await world.settled(path, lambda answer: answer["status"] in {"SUCCESS", "ERROR"}):
        world.note("compaction", "never ended")
    await world.rest("GET", path)


async def read(client: Client, consumer_id: int, *, compacted: bool) -> None:
    await client.subscribe(
        consumer_id, f"reader{consumer_id}", durable=False, read_compacted=compacted
    )
    client.flow(100, consumer_id)
    await client.silence(READ_S)


@scenario()
async def a_compacted_topic_has_the_last_of_each_key(world: World) -> None:
    client = await world.client()
    await client.producer()
    await world.rest("GET", world.topic_path("t", "/compaction"))
    await publish(client, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", ""), ("a", "3"))
    await compact(world)
    await read(client, 1, compacted=True)
    await read(client, 2, compacted=False)
    await publish(client, ("c", "2"))
    await client.take_sorted(2)


@scenario()
async def messages_without_a_key_in_a_compacted_topic(world: World) -> None:
    await world.filled(["no key"])
    client = await world.client()
    await client.producer()
    await publish(client, ("a", "1"), ("a", "2"))
    await compact(world)
    await read(client, 1, compacted=True)


_OPENED = {"highest_sequence_id": 5, "producer_name": "raw", "sequence_id": 5}


@scenario(
    wanted=[
        Wanted(
            _OPENED | {"uncompressed_size": 13},
            _OPENED,
            "a batch of which nothing goes stays as it was sent",
        ),
        Wanted(
            {"consumer_mark_delete_position": "L0:-1", "last_message_id": "L0:2"},
            {"consumer_mark_delete_position": "L0:-1", "last_message_id": "L0:2 batch 0/0"},
            "a message in a batch of one has the id that it is delivered under",
        ),
    ]
)
async def batches_in_a_compacted_topic(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send_batch(1, 0, ["a1", "b1", "c1"], ["a", "b", "c"])
    client.send_batch(1, 3, ["a2", "d1"], ["a", "d"])
    client.send_batch(1, 5, ["d2"], ["d"])
    await client.receipts(3)
    await compact(world)
    await read(client, 1, compacted=True)
    await client.last_message_id(1)


@scenario()
async def compaction_of_an_empty_topic_and_twice(world: World) -> None:
    await world.rest("PUT", world.topic_path("t"))
    await compact(world)
    client = await world.client()
    await client.producer()
    await publish(client, ("a", "1"), ("a", "2"))
    await compact(world)
    await publish(client, ("a", "3"), ("b", "1"))
    await compact(world)
    await read(client, 1, compacted=True)
    await world.stats(
        lambda stats: {
            key: value
            for key, value in stats["compaction"].items()
            if key != "lastCompactionDurationTimeInMills"
        }
    )


@scenario(
    wanted=[
        Wanted(
            {"consumer_mark_delete_position": "L0:-1", "last_message_id": "-1:-1"},
            {"consumer_mark_delete_position": "L0:3", "last_message_id": "-1:-1"},
            "what was taken away is passed, as if it were acknowledged",
        ),
    ]
)
async def everything_in_a_compacted_topic_was_taken_away(world: World) -> None:
    client = await world.client()
    await client.producer()
    await publish(client, ("a", "1"), ("b", "1"), ("a", ""), ("b", ""))
    await compact(world)
    await read(client, 1, compacted=True)
    await client.last_message_id(1)
    await publish(client, ("c", "1"))
    await client.take(1)


@scenario()
async def who_may_read_compacted(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, "exclusive", SUBSCRIBE.Exclusive, read_compacted=True)
    await client.subscribe(2, "shared", SUBSCRIBE.Shared, read_compacted=True)
    await client.subscribe(3, "key-shared", SUBSCRIBE.Key_Shared, read_compacted=True)
    await client.subscribe(4, "failover", SUBSCRIBE.Failover, read_compacted=True)
    topic = f"non-persistent://{world.namespace}/n"
    await client.lookup(topic)
    await client.subscribe(5, topic=topic, read_compacted=True)
    await client.take(1)


@scenario()
async def compaction_of_topics_that_are_not_there(world: World) -> None:
    await world.rest("PUT", world.topic_path("absent", "/compaction"))
    await world.rest("GET", world.topic_path("absent", "/compaction"))


@scenario()
async def a_compacted_topic_after_a_seek(world: World) -> None:
    client = await world.client()
    await client.producer()
    await publish(client, ("a", "1"), ("a", "2"), ("b", "1"))
    await compact(world)
    await client.subscribe(1, read_compacted=True)
    client.flow(10)
    await client.silence(READ_S)
    await client.seek(message_id=api.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1))
    await client.take(1)
    await client.subscribe(1, read_compacted=True)
    client.flow(10)
    await client.silence(READ_S)
