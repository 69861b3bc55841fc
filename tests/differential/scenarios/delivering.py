"""Who gets which message: permits, batches, failover, rounds, priorities, non-persistent topics."""

from __future__ import annotations

from typing import Any

from tests.differential.patience import pause
from tests.differential.scenario import Wanted, scenario
from tests.differential.transcript import Line
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
PUSH_S = 0.4


@scenario()
async def no_more_messages_than_permits(world: World) -> None:
    await world.filled([f"m{number}" for number in range(5)])
    client = await world.client()
    await client.subscribe()
    await client.silence()
    await client.messages(2)
    await client.silence()
    await client.messages(1)
    client.flow(10)
    await client.take(2)
    await client.silence()


@scenario()
async def permits_count_the_messages_in_a_batch(world: World) -> None:
    client = await world.client()
    await client.producer()
    for first in (0, 3, 6):
        client.send_batch(1, first, ["a", "b", "c"])
    await client.receipts(3)
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    client.flow(4)
    await client.take(2)
    await client.silence()
    client.flow(3)
    await client.take(1)
    await world.stats(lambda stats: permits(stats))


def _batch(entry_id: int) -> Line:
    first = 3 * entry_id
    metadata = {
        "highest_sequence_id": first + 2,
        "num_messages_in_batch": 3,
        "producer_name": "raw",
        "sequence_id": first,
    }
    batch = [{"body": body, "sequence_id": first + index} for index, body in enumerate("abc")]
    fields = {"batch": batch, "consumer_id": 1, "message_id": f"L0:{entry_id}"}
    return ["a", "< MESSAGE", {**fields, "metadata": metadata}]


def _shown(permits: int) -> Line:
    path = "/admin/v2/persistent/diff/permits-and-batches-of-an-exclusive-consumer/t/stats"
    return ["rest", f"GET {path}", 200, [["a1", permits, 0]]]


_TWO_MORE: Line = ["a", "> FLOW", {"consumer_id": 1, "messagePermits": 2}]


@scenario(
    wanted=[
        Wanted(
            (_batch(1), _shown(-4), _TWO_MORE, ["a", "< nothing"]),
            (["a", "< nothing"], _shown(-1), _TWO_MORE, _batch(1)),
            "upstream sends as many batches as there are permits for messages",
        )
    ]
)
async def permits_and_batches_of_an_exclusive_consumer(world: World) -> None:
    client = await world.client()
    await client.producer()
    for first in (0, 3, 6):
        client.send_batch(1, first, ["a", "b", "c"])
    await client.receipts(3)
    await client.subscribe()
    client.flow(2)
    await client.take(1)
    await client.silence()
    await world.stats(lambda stats: permits(stats))
    client.flow(2)
    await client.take(1)
    await client.silence()


def permits(stats: dict[str, Any]) -> object:
    return [
        [each["consumerName"], each["availablePermits"], each["unackedMessages"]]
        for each in stats["subscriptions"]["s"]["consumers"]
    ]


@scenario()
async def odd_permits(world: World) -> None:
    await world.filled(["a"])
    client = await world.client()
    await client.subscribe()
    client.flow(0)
    await client.silence()
    client.flow(1, consumer_id=9)
    await client.silence()
    await client.messages(1)


@scenario()
async def messages_published_while_a_consumer_waits(world: World) -> None:
    client = await world.client()
    await client.subscribe()
    client.flow(10)
    await world.filled(["a", "b"])
    await client.take(2)


@scenario()
async def shared_consumers_take_turns(world: World) -> None:
    await world.filled([f"m{number}" for number in range(12)])
    clients = [await world.client(name) for name in "abc"]
    for client in clients:
        await client.subscribe(1, kind=SUBSCRIBE.Shared)
    for client in clients:
        client.flow(4)
    with world.transcript.quiet():
        got = [await client.take(4) for client in clients]
    entries = sorted(each.message.message_id.entryId for part in got for each in part)
    world.note("entries of all", entries)
    world.note("how many each got", [len(part) for part in got])


@scenario()
async def shared_consumers_with_priorities(world: World) -> None:
    clients = [await world.client(name) for name in "abc"]
    for client, level in zip(clients, (0, 1, 0), strict=True):
        await client.subscribe(1, kind=SUBSCRIBE.Shared, priority_level=level)
    for client in clients:
        client.flow(3)
        await client.ping()
    await world.filled([f"m{number}" for number in range(8)])
    await pause(PUSH_S)
    with world.transcript.quiet():
        got = [await client.take(8, PUSH_S) for client in clients]
    world.note("how many each got", [len(part) for part in got])


@scenario()
async def a_shared_consumer_dies_with_messages(world: World) -> None:
    await world.filled([f"m{number}" for number in range(4)])
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe(1, kind=SUBSCRIBE.Shared)
    await a.messages(3)
    await b.subscribe(1, kind=SUBSCRIBE.Shared)
    await b.messages(1)
    await a.close()
    await b.messages(3)


@scenario()
async def failover_goes_by_name(world: World) -> None:
    c, a, b = [await world.client(name) for name in "cab"]
    for client in (c, a, b):
        await client.subscribe(1, kind=SUBSCRIBE.Failover)
        for other in (c, a, b):
            await other.silence(PUSH_S)
    await active(world)
    await a.close_consumer()
    for client in (c, a, b):
        await client.silence(PUSH_S)
    await active(world)


async def active(world: World) -> None:
    await world.stats(lambda stats: stats["subscriptions"]["s"]["activeConsumerName"])


@scenario()
async def failover_goes_by_priority_first(world: World) -> None:
    a, b, c = [await world.client(name) for name in "abc"]
    for client, level in ((a, 2), (b, 1), (c, 1)):
        await client.subscribe(1, kind=SUBSCRIBE.Failover, priority_level=level)
        for other in (a, b, c):
            await other.silence(PUSH_S)
    await active(world)
    await b.close()
    await pause(PUSH_S)
    for client in (a, c):
        await client.silence(PUSH_S)
    await active(world)


@scenario()
async def failover_hands_over_what_was_not_acknowledged(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(4)])
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe(1, kind=SUBSCRIBE.Failover)
    await b.subscribe(1, kind=SUBSCRIBE.Failover)
    await a.silence(PUSH_S)
    await b.silence(PUSH_S)
    b.flow(10)
    await a.messages(3)
    await a.acknowledge(ids[1])
    await a.close_consumer()
    await b.take(4)
    await b.silence()


@scenario()
async def failover_on_partitions(world: World) -> None:
    await world.rest("PUT", world.topic_path("p", "/partitions"), 3)
    a, b = await world.client("a"), await world.client("b")
    for partition in range(3):
        topic = f"p-partition-{partition}"
        for client in (a, b):
            await client.subscribe(
                partition, kind=SUBSCRIBE.Failover, topic=topic, consumer_name=client.name
            )
            await pause(PUSH_S)
        with world.transcript.quiet():
            for client in (a, b):
                await client.silence(PUSH_S)
        await world.stats(lambda stats: stats["subscriptions"]["s"]["activeConsumerName"], topic)


@scenario()
async def a_better_failover_consumer_waits_its_turn(world: World) -> None:
    await world.filled(["m0", "m1", "m2"])
    b, a = await world.client("b"), await world.client("a")
    await b.subscribe(1, kind=SUBSCRIBE.Failover)
    await b.take(1)
    await b.messages(1)
    await a.subscribe(1, kind=SUBSCRIBE.Failover, priority_level=0)
    a.flow(3)
    await a.silence(1.5)
    await b.silence(PUSH_S)


@scenario()
async def the_order_of_answers_when_a_consumer_becomes_active(world: World) -> None:
    await world.filled(["m0"])
    client = await world.client()
    client.post(
        api.CommandSubscribe(
            topic=world.topic("t"),
            subscription="s",
            subType=SUBSCRIBE.Failover,
            consumer_id=1,
            request_id=77,
            consumer_name="a1",
            initialPosition=SUBSCRIBE.Earliest,
        ),
        api.CommandFlow(consumer_id=1, messagePermits=1),
    )
    await client.take(3)


@scenario(
    wanted=[
        Wanted(
            ["a", "< ERROR", {"message": "Failed to recover Transaction Buffer."}],
            [
                "a",
                "< ERROR",
                {
                    "error": "NotAllowedError",
                    "message": "a non-persistent topic keeps no last message",
                },
            ],
            "there is none, and no transaction is to blame",
        ),
        Wanted(
            (
                ["a", "> SEEK", {"consumer_id": 1, "message_publish_time": 1}],
                ["a", "< SUCCESS", {}],
            ),
            (
                ["a", "> SEEK", {"consumer_id": 1, "message_publish_time": 1}],
                [
                    "a",
                    "< ERROR",
                    {
                        "error": "NotAllowedError",
                        "message": "a non-persistent topic keeps no messages to seek to",
                    },
                ],
            ),
            "upstream says that it did what cannot be done",
        ),
    ]
)
async def messages_of_non_persistent_topics(world: World) -> None:
    topic = f"non-persistent://{world.namespace}/n"
    client = await world.client()
    await client.lookup(topic)
    await client.producer(1, topic)
    client.send(1, 0, "nobody listens")
    await client.receipts()
    await client.subscribe(1, topic=topic)
    client.send(1, 1, "no permits")
    await client.receipts()
    await client.silence()
    client.flow(1)
    await client.ping()
    client.send(1, 2, "heard")
    await client.receipts()
    await client.take(1)
    client.send(1, 3, "no more permits")
    await client.receipts()
    await client.silence()
    await client.last_message_id()
    await client.seek(message_publish_time=1)
    await client.unsubscribe()


@scenario()
async def acknowledgements_on_non_persistent_topics(world: World) -> None:
    topic = f"non-persistent://{world.namespace}/n"
    client = await world.client()
    await client.lookup(topic)
    await client.producer(1, topic)
    await client.subscribe(1, topic=topic, kind=SUBSCRIBE.Shared)
    client.flow(5)
    await client.ping()
    client.send(1, 0, "x")
    await client.receipts()
    (message_id,) = await client.arriving(1)
    await client.acknowledge(message_id)
    client.redeliver(message_id)
    await client.silence()


@scenario(
    wanted=[
        Wanted("L0:-1", "L0:-1 partition 1", "both positions of one answer name the partition"),
    ]
)
async def messages_of_a_partition_carry_its_number(world: World) -> None:
    await world.rest("PUT", world.topic_path("p", "/partitions"), 2)
    client = await world.client()
    await client.producer(1, "p-partition-1")
    client.send(1, 0, "x")
    await client.receipts()
    await client.subscribe(1, topic="p-partition-1")
    await client.messages(1)
    await client.last_message_id()
