"""The members of the stats documents and their types, and counters that must be exact."""

from __future__ import annotations

from typing import Any

from tests.differential.plain import Json, shape
from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
# Members that upstream has since 4.0.7.
NEWER = {"topicCreationTimeStamp", "lastPublishTimeStamp"}


def form(stats: Json) -> Json:
    """The shape of stats, but for members that the recorded broker did not have yet."""
    return _older(shape(stats))


def _older(members: Json) -> Json:
    if not isinstance(members, dict):
        return members
    return {name: _older(each) for name, each in members.items() if name not in NEWER}


async def used(
    world: World, kind: api.CommandSubscribe.SubType.ValueType, topic: str = "t"
) -> Client:
    client = await world.client()
    with world.transcript.quiet():
        await client.lookup(topic)
        await client.producer(topic=topic, producer_name="mine")
        await client.subscribe(1, kind=kind, topic=topic)
        client.flow(10)
        client.send(1, 0, "x", partition_key="k")
        client.send_batch(1, 1, ["a", "b"])
        await client.receipts(2)
        await client.take(2 + (kind == SUBSCRIBE.Failover))
    return client


@scenario()
async def the_shape_of_stats(world: World) -> None:
    await used(world, SUBSCRIBE.Exclusive)
    await world.stats(form)


@scenario()
async def the_shape_of_stats_of_shared_subscriptions(world: World) -> None:
    for kind in (SUBSCRIBE.Shared, SUBSCRIBE.Failover, SUBSCRIBE.Key_Shared):
        await used(world, kind, f"t{kind}")
        await world.stats(lambda stats: shape(stats["subscriptions"]["s"]), f"t{kind}")


_MERGED_PUBLISHER = {
    "averageMsgSize": "number",
    "chunkedMessageRate": "number",
    "msgRateIn": "number",
    "msgThroughputIn": "number",
    "producerId": "number",
    "supportsPartialProducer": "boolean",
}
_SAME_EVERYWHERE = {
    "address": "string",
    "clientVersion": "string",
    "connectedSince": "string",
    "metadata": {},
}
_MERGED_CONSUMER = {
    "availablePermits": "number",
    "avgMessagesPerEntry": "number",
    "blockedConsumerOnUnackedMsgs": "boolean",
    "bytesOutCounter": "number",
    "chunkedMessageRate": "number",
    "consumerName": "string",
    "drainingHashesClearedTotal": "number",
    "drainingHashesCount": "number",
    "drainingHashesUnackedMessages": "number",
    "lastAckedTime": "string",
    "lastAckedTimestamp": "number",
    "lastConsumedFlowTimestamp": "number",
    "lastConsumedTime": "string",
    "lastConsumedTimestamp": "number",
    "messageAckRate": "number",
    "msgOutCounter": "number",
    "msgRateOut": "number",
    "msgRateRedeliver": "number",
    "msgThroughputOut": "number",
    "unackedMessages": "number",
}
_KEPT = "what is the same in all partitions is told of the whole topic too"


@scenario(
    wanted=[
        Wanted(
            _MERGED_PUBLISHER,
            _MERGED_PUBLISHER
            | _SAME_EVERYWHERE
            | {"accessMode": "string", "producerName": "string"},
            _KEPT,
        ),
        Wanted(_MERGED_CONSUMER, _MERGED_CONSUMER | _SAME_EVERYWHERE, _KEPT),
    ]
)
async def the_shape_of_stats_of_partitioned_topics(world: World) -> None:
    await world.rest("PUT", world.topic_path("p", "/partitions"), 2)
    await used(world, SUBSCRIBE.Shared, "p-partition-0")
    await world.stats(form, "p", "/partitioned-stats?perPartition=true")
    await world.stats(lambda stats: form(stats["partitions"]), "p", "/partitioned-stats")
    await world.stats(form, "absent", "/partitioned-stats")
    await world.stats(form, "p", "/stats")


@scenario()
async def the_shape_of_stats_of_non_persistent_topics(world: World) -> None:
    await used(world, SUBSCRIBE.Shared, f"non-persistent://{world.namespace}/n")
    await world.rest("GET", world.topic_path("n", "/stats", "non-persistent"), pick=form)


@scenario()
async def the_shape_of_internal_stats(world: World) -> None:
    await used(world, SUBSCRIBE.Shared)
    await world.rest("GET", world.topic_path("t", "/internalStats"), pick=shape)


@scenario()
async def internal_stats_of_a_topic_with_acknowledgements(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(6)])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    client.flow(6)
    await client.take(6)
    await client.acknowledge(ids[0], ids[2], ids[4])

    def exact(stats: dict[str, Any]) -> object:
        names = ("entriesAddedCounter", "numberOfEntries", "state", "waitingCursorsCount")
        cursor = stats["cursors"]["s"]
        cursor_names = (
            *("markDeletePosition", "readPosition", "messagesConsumedCounter", "state"),
            *("individuallyDeletedMessages", "totalNonContiguousDeletedMessagesRange"),
            *("numberOfEntriesSinceFirstNotAckedMessage", "pendingReadOps"),
        )
        shown = {name: cursor[name] for name in cursor_names}
        return [{name: stats[name] for name in names}, shown]

    await world.rest("GET", world.topic_path("t", "/internalStats"), pick=exact)


@scenario()
async def counters_are_exact(world: World) -> None:
    client = await used(world, SUBSCRIBE.Shared)

    def counters(stats: dict[str, Any]) -> object:
        subscription = stats["subscriptions"]["s"]
        consumer, publisher = subscription["consumers"][0], stats["publishers"][0]
        return {
            "topic": [stats["msgInCounter"], stats["msgOutCounter"], stats["averageMsgSize"] > 0],
            "subscription": [
                subscription[name]
                for name in ("msgBacklog", "msgOutCounter", "unackedMessages", "type")
            ],
            "consumer": [
                consumer[name]
                for name in ("msgOutCounter", "availablePermits", "unackedMessages", "consumerName")
            ],
            "publisher": [publisher["producerName"], publisher["producerId"]],
        }

    await world.stats(counters)
    await client.acknowledge(api.MessageIdData(ledgerId=0, entryId=0))
    await world.stats(counters)


@scenario()
async def the_backlog_of_batches(world: World) -> None:
    client = await used(world, SUBSCRIBE.Exclusive)
    precise = "/stats?getPreciseBacklog=true"
    await world.stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"], tail=precise)
    await client.close_consumer()
    await world.stats(
        lambda stats: [
            stats["subscriptions"]["s"]["backlogSize"] > 0,
            stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"],
        ],
        tail=f"{precise}&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true",
    )


@scenario()
async def the_backlog_size_of_a_topic(world: World) -> None:
    ids = await world.filled(["x" * 10, "y" * 10, "z" * 10])
    for entry in (0, 2):
        position = {"ledgerId": ids[0].ledgerId, "entryId": entry, "partitionIndex": -1}
        await world.rest(
            "PUT", world.topic_path("t", "/backlogSize"), position, pick=lambda size: size > 0
        )


@scenario()
async def the_metadata_of_producers_and_consumers_is_shown(world: World) -> None:
    client = await world.client()
    pairs = [api.KeyValue(key="version", value="7")]
    await client.producer(1, metadata=pairs)
    await client.subscribe(1, metadata=pairs)
    await world.stats(
        lambda stats: [
            stats["publishers"][0]["metadata"],
            stats["subscriptions"]["s"]["consumers"][0]["metadata"],
            stats["publishers"][0].get("accessMode"),
        ]
    )
