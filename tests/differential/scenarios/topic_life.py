"""What clients hear when their topic ends, moves, or is deleted; and what grows too old."""

from __future__ import annotations

from typing import Any

from tests.differential.patience import pause
from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe


CLOSED = ["a", "< CLOSE_PRODUCER", {"producer_id": 1, "request_id": "none"}]
TOO_LATE = {
    "error": "TopicTerminatedError",
    "message": "Managed ledger was already terminated",
    "producer_id": 1,
    "sequence_id": 2,
}
END = ["a", "< REACHED_END_OF_TOPIC", {"consumer_id": 1}]


@scenario(
    wanted=[
        Wanted(
            (CLOSED, ["a", "< SEND_ERROR", TOO_LATE]),
            (CLOSED, ["a", "< nothing"]),
            "official clients close the connection over that error; a closed producer that comes "
            "again is told",
        )
    ]
)
async def terminating_a_topic(world: World) -> None:
    await world.filled(["m0", "m1"])
    client = await world.client()
    await client.producer()
    await client.subscribe(1, "exclusive")
    await client.subscribe(2, "shared", SUBSCRIBE.Shared)
    await world.rest("POST", world.topic_path("t", "/terminate"))
    client.send(1, 2, "too late")
    await client.take_sorted(2)
    await world.rest("POST", world.topic_path("t", "/terminate"))
    await client.producer(2)
    for consumer_id in (1, 2):
        client.flow(10, consumer_id)
        await client.silence()
    await client.last_message_id()
    await client.subscribe(3, "late")
    client.flow(10, 3)
    await client.silence()


@scenario(wanted=[Wanted((END, END), (END,), "once is enough")])
async def terminating_an_empty_topic(world: World) -> None:
    client = await world.client()
    await client.subscribe()
    await world.rest("POST", world.topic_path("t", "/terminate"))
    client.flow(1)
    await client.silence()
    await world.rest("POST", world.topic_path("absent", "/terminate"))


@scenario()
async def the_end_of_a_topic_is_told_to_those_who_acknowledged_all(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    client = await world.client()
    await client.subscribe()
    await client.messages(2)
    await world.rest("POST", world.topic_path("t", "/terminate"))
    await client.silence()
    await client.acknowledge(*ids)
    await client.silence()
    await client.close_consumer()
    await client.subscribe(2)
    await client.silence()


@scenario()
async def unloading_a_topic(world: World) -> None:
    await world.filled(["m0"])
    client = await world.client()
    await client.producer(7)
    await client.subscribe(8)
    await world.rest("PUT", world.topic_path("t", "/unload"))
    await client.take_sorted(2)
    await client.silence()
    await client.producer(7)
    await client.subscribe(8)
    await client.messages(1, consumer_id=8)


@scenario()
async def deleting_a_topic_that_is_used(world: World) -> None:
    client = await world.client()
    await client.producer(1)
    await world.rest("DELETE", world.topic_path("t"))
    await client.close_producer()
    await client.subscribe(2)
    await world.rest("DELETE", world.topic_path("t"))
    await client.close_consumer(2)
    await world.rest("DELETE", world.topic_path("t"))


@scenario()
async def deleting_a_topic_that_is_used_by_force(world: World) -> None:
    client = await world.client()
    await client.producer(1)
    await client.subscribe(2)
    await world.rest("DELETE", world.topic_path("t", "?force=true"))
    await client.take_sorted(2)
    await client.silence()
    await world.rest("GET", world.topic_path("t", "/stats"))


@scenario()
async def deleting_a_namespace_with_topics(world: World) -> None:
    client = await world.client()
    await client.producer(1)
    await world.rest("DELETE", world.namespace_path())
    await world.rest("DELETE", world.namespace_path("?force=true"))
    await client.take(1)
    await client.lookup()


@scenario()
async def messages_grow_too_old(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"], publish_time=1_600_000_000_000)
    client = await world.client()
    await client.subscribe()
    await client.messages(1)
    await world.rest("POST", world.topic_path("t", "/subscription/s/expireMessages/3600"))

    def left(stats: dict[str, Any]) -> Any:
        return stats["subscriptions"]["s"]["msgBacklog"]

    await world.settled_stats(lambda stats: left(stats) == 0)
    await world.stats(left)
    await client.acknowledge(ids[0])
    client.flow(10)
    await client.silence()
    await world.stats(lambda stats: stats["subscriptions"]["s"]["totalMsgExpired"])


_YOUNG = "/admin/v2/persistent/diff/young-messages-stay/t/stats"


@scenario(
    wanted=[
        Wanted(
            ["rest", f"GET {_YOUNG}", 200, 0],
            ["rest", f"GET {_YOUNG}", 200, 2],
            "an old message behind a young one takes that with it upstream",
        )
    ]
)
async def young_messages_stay(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe()
    client.send(1, 0, "old", publish_time=1_600_000_000_000)
    client.send(1, 1, "young", publish_time=4_000_000_000_000)
    client.send(1, 2, "old, but behind", publish_time=1_600_000_000_000)
    await client.receipts(3)
    await world.rest("POST", world.topic_path("t", "/all_subscription/expireMessages/3600"))
    await world.settled_stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"] < 3)
    await world.stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"])


async def quota(world: World, policy: str) -> None:
    body = {"limitSize": 10, "limitTime": -1, "policy": policy}
    await world.rest("POST", world.namespace_path("/backlogQuota"), body)


async def wait_for_quota() -> None:
    """Until the broker has looked, which it does every two seconds."""
    await pause(3.5)


@scenario()
async def a_backlog_quota_refuses_producers(world: World) -> None:
    await quota(world, "producer_exception")
    client = await world.client()
    await client.subscribe()
    await client.producer(1)
    client.send(1, 0, "x" * 100)
    await client.receipts()
    await wait_for_quota()
    await client.silence()
    client.send(1, 1, "more")
    await client.silence()
    await client.producer(2)


@scenario()
async def a_backlog_quota_holds_producers(world: World) -> None:
    await quota(world, "producer_request_hold")
    client = await world.client()
    await client.subscribe()
    await client.producer(1)
    client.send(1, 0, "x" * 100)
    await client.receipts()
    await wait_for_quota()
    await client.silence()
    await client.producer(2)


_EVICTED = "/admin/v2/persistent/diff/a-backlog-quota-evicts/t/stats"


@scenario(
    wanted=[
        Wanted(
            ["rest", f"GET {_EVICTED}", 200, 1],
            ["rest", f"GET {_EVICTED}", 200, 0],
            "upstream rounds down what it skips, and stays above its quota of 10 bytes",
        )
    ]
)
async def a_backlog_quota_evicts(world: World) -> None:
    await quota(world, "consumer_backlog_eviction")
    client = await world.client()
    await client.subscribe()
    await client.producer(1)
    for number in range(3):
        client.send(1, number, "x" * 100)
    await client.receipts(3)
    await world.settled_stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"] < 3)
    await world.stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"])
    await client.producer(2)


@scenario()
async def backlog_quotas_over_rest(world: World) -> None:
    path = world.namespace_path("/backlogQuotaMap")
    await world.rest("GET", path)
    await quota(world, "consumer_backlog_eviction")
    body = {"limitSize": -1, "limitTime": 60, "policy": "producer_exception"}
    tail = "/backlogQuota?backlogQuotaType=message_age"
    await world.rest("POST", world.namespace_path(tail), body)
    await world.rest("GET", path)
    await world.rest("DELETE", world.namespace_path(tail))
    await world.rest("GET", path)
