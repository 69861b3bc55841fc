"""Subscriptions as administrators see and move them: create, delete, skip, clear, expire, reset,
peek."""

from __future__ import annotations

from typing import Any

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
FIRST_MS = 1_700_000_000_000


def path(world: World, tail: str = "", subscription: str = "s") -> str:
    return world.topic_path("t", f"/subscription/{subscription}{tail}")


async def with_messages(world: World, count: int = 5) -> list[api.MessageIdData]:
    """A subscription with so many messages before it, published one second apart."""
    with world.transcript.quiet():
        await world.rest("PUT", path(world), {"ledgerId": -1, "entryId": -1})
        client = await world.client("filler")
        await client.producer()
        for number in range(count):
            client.send(1, number, f"m{number}", publish_time=FIRST_MS + 1000 * number)
        ids = await client.receipts(count)
        await client.close_producer()
    world.transcript.plain.ledger(ids[0].ledgerId)
    return ids


async def backlog(world: World) -> None:
    await world.stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"])


async def rest_of(world: World) -> None:
    """What a consumer gets now."""
    client = await world.client("reader")
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    client.flow(100)
    await client.silence()


def _named(what: str) -> Wanted:
    """What stands in the path is no number: Geminga says which."""
    reason = f"{what} should be a whole number"
    return Wanted("HTML", {"reason": reason}, "upstream answers with a page")


_BYTES = Wanted(
    "application/json", "application/octet-stream", "what a message holds is bytes, not JSON"
)


def _failure(path: str, message: str, ours: str) -> Wanted:
    """Upstream fails over a message that is not there: Geminga says that it is not."""
    request = f"GET /admin/v2/persistent/diff/{path}"
    reason = f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}"
    theirs = ["rest", request, 500, {"reason": reason}]
    return Wanted(theirs, ["rest", request, 404, {"reason": ours}], "there is no such message")


@scenario()
async def creating_subscriptions(world: World) -> None:
    await world.filled(["old"])
    await world.rest("PUT", path(world, subscription="latest"))
    await world.rest("PUT", path(world, subscription="latest"))
    earliest = {"ledgerId": -1, "entryId": -1}
    await world.rest("PUT", path(world, subscription="earliest"), earliest)
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}
    await world.rest("PUT", path(world, subscription="latest2"), latest)
    with_properties = earliest | {"properties": {"a": "1"}}
    await world.rest("PUT", path(world, subscription="properties"), with_properties)
    await world.rest("PUT", path(world, "?replicated=true", "replicated"))
    await world.rest("GET", world.topic_path("t", "/subscriptions"), pick=sorted)
    await world.stats(
        lambda stats: {
            name: [each["msgBacklog"], each["subscriptionProperties"], each["replicated"]]
            for name, each in sorted(stats["subscriptions"].items())
            if "replicated" in each
        }
    )


@scenario()
async def creating_subscriptions_of_topics_that_are_not_there(world: World) -> None:
    await world.rest("PUT", world.topic_path("made", "/subscription/s"))
    await world.rest("GET", world.topic_path("made", "/subscriptions"))
    await world.rest("GET", world.topic_path("absent", "/subscriptions"))
    await world.rest("DELETE", world.topic_path("absent", "/subscription/s"))
    await world.rest("DELETE", world.topic_path("made", "/subscription/absent"))


@scenario()
async def creating_subscriptions_of_partitioned_topics(world: World) -> None:
    await world.rest("PUT", world.topic_path("p", "/partitions"), 2)
    await world.rest("PUT", world.topic_path("p", "/subscription/s"))
    await world.rest("PUT", world.topic_path("p", "/subscription/s"))
    await world.rest("GET", world.topic_path("p", "/subscriptions"))
    await world.rest("GET", world.topic_path("p-partition-1", "/subscriptions"))
    await world.rest("POST", world.topic_path("p", "/subscription/s/skip_all"))
    await world.rest("POST", world.topic_path("p", "/subscription/s/skip/1"))
    await world.rest("DELETE", world.topic_path("p", "/subscription/s"))
    await world.rest("GET", world.topic_path("p-partition-1", "/subscriptions"))


@scenario()
async def deleting_subscriptions(world: World) -> None:
    client = await world.client()
    await client.subscribe()
    await world.rest("DELETE", path(world))
    await world.rest("DELETE", path(world, "?force=true"))
    await client.silence()
    await world.rest("DELETE", path(world))
    await client.subscribe()
    await client.close_consumer()
    await world.rest("DELETE", path(world))


@scenario(wanted=[_named("count")])
async def skipping_messages(world: World) -> None:
    await with_messages(world)
    await world.rest("POST", path(world, "/skip/2"))
    await backlog(world)
    await world.rest("POST", path(world, "/skip/0"))
    await world.rest("POST", path(world, "/skip/99"))
    await backlog(world)
    await world.rest("POST", path(world, "/skip/x"))
    await world.rest("POST", path(world, "/skip/1", "absent"))
    await rest_of(world)


@scenario()
async def clearing_a_backlog(world: World) -> None:
    await with_messages(world)
    await world.rest("POST", path(world, "/skip_all"))
    await backlog(world)
    await world.rest("POST", path(world, "/skip_all", "absent"))
    await world.rest("POST", world.namespace_path("/clearBacklog"))
    await world.rest("POST", world.namespace_path("/clearBacklog/s"))


@scenario()
async def clearing_the_backlog_of_a_connected_consumer(world: World) -> None:
    await with_messages(world)
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(2)
    await world.rest("POST", path(world, "/skip_all"))
    client.redeliver()
    client.flow(10)
    await client.silence()


@scenario(wanted=[_named("timestamp")])
async def resetting_a_cursor_to_a_time(world: World) -> None:
    await with_messages(world)
    await world.rest("POST", path(world, "/skip_all"))
    for time_ms in (FIRST_MS + 3000, FIRST_MS + 1500, 0, FIRST_MS + 10**9):
        await world.rest("POST", path(world, f"/resetcursor/{time_ms}"))
        await backlog(world)
    await world.rest("POST", path(world, "/resetcursor/x"))
    await world.rest("POST", path(world, "/resetcursor/1", "absent"))


@scenario()
async def resetting_a_cursor_to_a_message(world: World) -> None:
    ids = await with_messages(world)
    with world.transcript.quiet():
        await world.rest("POST", path(world, "/skip_all"))
    for entry, excluded in ((2, False), (2, True), (4, False), (99, False)):
        position = {
            "ledgerId": ids[0].ledgerId,
            "entryId": entry,
            "partitionIndex": -1,
            "isExcluded": excluded,
        }
        world.note("resetting to", [entry, excluded])
        await world.rest("POST", path(world, "/resetcursor"), position)
        await backlog(world)
    await rest_of(world)


@scenario()
async def resetting_the_cursor_of_a_connected_consumer(world: World) -> None:
    await with_messages(world)
    client = await world.client()
    await client.subscribe()
    await client.messages(2)
    await world.rest("POST", path(world, f"/resetcursor/{FIRST_MS}"))
    await client.silence()
    await client.subscribe()
    client.flow(10)
    await client.silence()


@scenario(wanted=[_named("seconds")])
async def expiring_messages_by_age(world: World) -> None:
    await with_messages(world)
    await world.rest("POST", path(world, "/expireMessages/999999999"))
    await backlog(world)
    await world.rest("POST", path(world, "/expireMessages/1"))
    await world.settled_stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"] == 0)
    await backlog(world)
    await world.rest("POST", path(world, "/expireMessages/1", "absent"))
    await world.rest("POST", path(world, "/expireMessages/x"))


@scenario()
async def expiring_messages_by_position(world: World) -> None:
    ids = await with_messages(world)
    position = {"ledgerId": ids[0].ledgerId, "entryId": 2, "partitionIndex": -1}
    await world.rest("POST", path(world, "/expireMessages"), position)
    await world.settled_stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"] < 5)
    await backlog(world)


@scenario(
    wanted=[
        _BYTES,
        _failure("peeking-at-messages/t/subscription/s/position/0", "null", "Message not found"),
    ]
)
async def peeking_at_messages(world: World) -> None:
    pair = api.KeyValue(key="colour", value="blue")
    await world.filled(["hello"], partition_key="k", properties=[pair], event_time=12345)
    await world.rest("PUT", path(world), {"ledgerId": -1, "entryId": -1})
    prefixes = ("x-pulsar", "content-type")
    await world.rest_headers("GET", path(world, "/position/1"), prefixes=prefixes)
    await world.rest("GET", path(world, "/position/2"))
    await world.rest("GET", path(world, "/position/0"))
    await world.rest("GET", path(world, "/position/1", "absent"))
    await backlog(world)


@scenario(wanted=[_BYTES])
async def peeking_at_batches(world: World) -> None:
    await world.rest("PUT", path(world), {"ledgerId": -1, "entryId": -1})
    client = await world.client()
    await client.producer()
    client.send_batch(1, 0, ["a", "b", "c"], ["k0", "k1", "k2"])
    await client.receipts()
    prefixes = ("x-pulsar", "content-type")
    await world.rest_headers("GET", path(world, "/position/1"), prefixes=prefixes)


@scenario(
    wanted=[
        _BYTES,
        _failure(
            "reading-a-message-by-its-id/t/ledger/L0/entry/9",
            "LastConfirmedEntry is L0:0 when reading entry 9",
            "Message id not found",
        ),
    ]
)
async def reading_a_message_by_its_id(world: World) -> None:
    ids = await world.filled(["hello"], partition_key="k")
    ledger = ids[0].ledgerId
    prefixes = ("x-pulsar", "content-type")
    await world.rest("GET", world.topic_path("t", f"/ledger/{ledger}/entry/9"))
    await world.rest_headers(
        "GET", world.topic_path("t", f"/ledger/{ledger}/entry/0"), prefixes=prefixes
    )
    await world.rest("GET", world.topic_path("t", "/lastMessageId"))
    await world.rest("GET", world.topic_path("t", f"/messageid/{FIRST_MS}"))


@scenario(wanted=[_BYTES])
async def examining_messages(world: World) -> None:
    await world.filled(["first", "second", "last"])
    prefixes = ("x-pulsar-message-id", "content-type")
    tail = "/examinemessage?initialPosition={}&messagePosition={}"
    for where, number in (("earliest", 1), ("earliest", 2), ("latest", 1)):
        await world.rest_headers(
            "GET", world.topic_path("t", tail.format(where, number)), prefixes=prefixes
        )
    await world.rest("GET", world.topic_path("t", tail.format("middle", 1)))


@scenario()
async def properties_of_subscriptions_over_rest(world: World) -> None:
    await world.rest("PUT", path(world))
    await world.rest("PUT", path(world, "/properties"), {"a": "1", "b": "2"})
    await world.rest("GET", path(world, "/properties"))
    await world.rest("PUT", path(world, "/properties"), {"c": "3"})
    await world.rest("GET", path(world, "/properties"))
    await world.rest("GET", path(world, "/properties", "absent"))


@scenario()
async def analysing_a_backlog(world: World) -> None:
    await with_messages(world)
    await world.rest("POST", path(world, "/analyzeBacklog"), pick=without_times)


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if "time" not in key.lower()}
