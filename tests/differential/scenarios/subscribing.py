"""Subscriptions: which consumers go together, where they begin, and how they end."""

from __future__ import annotations

from tests.differential.scenario import Wanted, register_scenario, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
KINDS = {
    "exclusive": SUBSCRIBE.Exclusive,
    "shared": SUBSCRIBE.Shared,
    "failover": SUBSCRIBE.Failover,
    "key-shared": SUBSCRIBE.Key_Shared,
}
PUSH_S = 0.3


def family(first: str) -> None:
    async def talk(world: World) -> None:
        for second, kind in KINDS.items():
            clients = [await world.client(f"{name}-{second}") for name in "ab"]
            await clients[0].subscribe(1, kind=KINDS[first], topic=second)
            await clients[0].silence(PUSH_S)
            await clients[1].subscribe(1, kind=kind, topic=second)
            await clients[1].silence(PUSH_S)
            await clients[0].close_consumer()
            await clients[1].subscribe(2, kind=kind, topic=second)
            for client in clients:
                await client.silence(PUSH_S)

    talk.__module__ = __name__
    register_scenario(f"subscribe-{first}-then-others", talk)


for _kind in KINDS:
    family(_kind)


@scenario()
async def the_same_consumer_id_twice(world: World) -> None:
    client = await world.client()
    await client.subscribe(1)
    await client.subscribe(1)
    await client.subscribe(1, "another")
    await client.subscribe(1, topic="other")


@scenario()
async def consumers_without_a_name(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared, consumer_name="")
    await client.subscribe(2, kind=SUBSCRIBE.Shared, consumer_name="")
    await client.subscribe(3, kind=SUBSCRIBE.Shared, consumer_name="same")
    await client.subscribe(4, kind=SUBSCRIBE.Shared, consumer_name="same")
    await world.stats(
        lambda stats: sorted(
            len(each["consumerName"]) for each in stats["subscriptions"]["s"]["consumers"]
        )
    )


@scenario()
async def subscriptions_with_odd_names(world: World) -> None:
    client = await world.client()
    for number, name in enumerate(("", " ", "a/b", "Grüße", "x" * 300, "pulsar.repl.c", "__c"), 1):
        await client.subscribe(number, name)


@scenario()
async def a_consumer_of_an_exclusive_subscription_dies(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe()
    await b.subscribe()
    await a.close()
    await world.settled_stats(lambda stats: not stats["subscriptions"]["s"]["consumers"])
    await b.subscribe()


@scenario()
async def a_new_subscription_begins_latest_or_earliest(world: World) -> None:
    await world.filled(["old"])
    client = await world.client()
    await client.subscribe(1, "latest", initialPosition=SUBSCRIBE.Latest)
    await client.subscribe(2, "earliest", initialPosition=SUBSCRIBE.Earliest)
    await world.filled(["new"])
    await client.messages(1, consumer_id=1)
    await client.messages(2, consumer_id=2)


@scenario()
async def an_old_subscription_goes_on_where_it_was(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(5)])
    client = await world.client()
    await client.subscribe()
    await client.messages(4)
    await client.acknowledge(ids[0])
    await client.acknowledge(ids[2])
    await client.close_consumer()
    await client.subscribe(2, initialPosition=SUBSCRIBE.Latest)
    await client.messages(3, consumer_id=2)


@scenario()
async def a_non_durable_subscription_begins_at_a_message(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(5)])
    client = await world.client()
    await client.subscribe(1, "reader", durable=False, start_message_id=ids[2])
    await client.messages(5, consumer_id=1)
    await client.close_consumer(1)
    await client.subscribe(2, "reader", durable=False, initialPosition=SUBSCRIBE.Latest)
    await world.filled(["new"])
    await client.messages(1, consumer_id=2)


@scenario()
async def a_non_durable_subscription_begins_at_odd_ids(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(3)])
    ledger = ids[0].ledgerId
    starts = {
        "earliest": api.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1),
        "latest": api.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1),
        "beyond": api.MessageIdData(ledgerId=ledger, entryId=99),
        "before": api.MessageIdData(ledgerId=0, entryId=0),
    }
    client = await world.client()
    consumer_id = 0
    for position in (SUBSCRIBE.Earliest, SUBSCRIBE.Latest):
        for name, start in starts.items():
            consumer_id += 1
            with world.transcript.quiet():
                await client.subscribe(
                    consumer_id,
                    f"{name}-{position}",
                    durable=False,
                    start_message_id=start,
                    initialPosition=position,
                )
            world.note("starts", name)
            client.flow(10, consumer_id)
            await client.silence(0.2)


@scenario()
async def a_non_durable_subscription_begins_inside_a_batch(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send_batch(1, 0, ["a", "b", "c"])
    (batch,) = await client.receipts()
    batch.batch_index = 1
    await client.subscribe(1, "reader", durable=False, start_message_id=batch)
    await client.messages(1)


@scenario()
async def a_non_durable_subscription_begins_some_time_ago(world: World) -> None:
    await world.filled(["long ago"], publish_time=1_600_000_000_000)
    client = await world.client()
    await client.subscribe(
        1,
        "reader",
        durable=False,
        initialPosition=SUBSCRIBE.Latest,
        start_message_rollback_duration_sec=3600,
    )
    await client.subscribe(
        2, "s", initialPosition=SUBSCRIBE.Latest, start_message_rollback_duration_sec=3600
    )
    await client.silence()


@scenario()
async def durable_and_non_durable_under_one_name(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, durable=False)
    await client.subscribe(2)
    await client.close_consumer(1)
    await client.subscribe(2)
    await client.close_consumer(2)
    await client.subscribe(3, durable=False)


@scenario()
async def subscription_properties(world: World) -> None:
    client = await world.client()
    first = [api.KeyValue(key="a", value="1")]
    second = [api.KeyValue(key="b", value="2")]

    def properties(stats: dict[str, dict[str, dict[str, object]]]) -> object:
        return stats["subscriptions"]["s"]["subscriptionProperties"]

    await client.subscribe(1, subscription_properties=first)
    await world.stats(properties)
    await client.close_consumer()
    await client.subscribe(1, subscription_properties=second)
    await world.stats(properties)


@scenario()
async def unsubscribing(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe()
    await a.unsubscribe()
    await world.stats(lambda stats: sorted(stats["subscriptions"]))
    await a.unsubscribe()
    await a.subscribe(1, kind=SUBSCRIBE.Shared)
    await b.subscribe(1, kind=SUBSCRIBE.Shared)
    await a.unsubscribe()
    await b.unsubscribe(force=True)
    await a.silence()
    await b.silence()
    await world.stats(lambda stats: sorted(stats["subscriptions"]))


@scenario()
async def unsubscribing_a_reader(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, durable=False)
    await client.unsubscribe()
    await client.close_consumer()
    await client.unsubscribe(9)


@scenario()
async def closing_a_consumer(world: World) -> None:
    client = await world.client()
    await client.subscribe()
    await client.close_consumer()
    await client.close_consumer()
    await client.close_consumer(9)
    client.flow(5)
    await client.silence(0.2)
    await client.lookup()


@scenario()
async def more_consumers_than_are_allowed(world: World) -> None:
    await world.rest("POST", world.namespace_path("/maxConsumersPerSubscription"), 1)
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.subscribe(2, kind=SUBSCRIBE.Shared)
    await world.rest("POST", world.namespace_path("/maxConsumersPerTopic"), 2)
    await client.subscribe(3, "other", kind=SUBSCRIBE.Shared)
    await client.subscribe(4, "third", kind=SUBSCRIBE.Shared)


@scenario()
async def more_subscriptions_than_are_allowed(world: World) -> None:
    await world.rest("POST", world.namespace_path("/maxSubscriptionsPerTopic"), 1)
    client = await world.client()
    await client.subscribe(1, "one")
    await client.subscribe(2, "two")
    await client.subscribe(3, "reader", durable=False)
    await world.rest("PUT", world.topic_path("t", "/subscription/three"))


@scenario()
async def subscription_types_that_are_enabled(world: World) -> None:
    path = world.namespace_path("/subscriptionTypesEnabled")
    await world.rest("POST", path, ["Exclusive", "Failover"])
    await world.rest("GET", path, pick=sorted)
    client = await world.client()
    for number, kind in enumerate(KINDS.values(), 1):
        await client.subscribe(number, f"s{number}", kind=kind)
    await client.take(1, 1.0)


@scenario(
    wanted=[
        Wanted(
            ["a", "< end of connection"],
            [
                "a",
                "< CONSUMER_STATS_RESPONSE",
                {
                    "error_code": "ConsumerNotFound",
                    "error_message": "Consumer not found: 9 is not connected",
                },
            ],
            "upstream means to say so too, and fails at it",
        )
    ]
)
async def consumer_stats_over_the_wire(world: World) -> None:
    await world.filled(["a", "b", "c"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(2)
    await client.ask(api.CommandConsumerStats(request_id=0, consumer_id=1))
    await client.ask(api.CommandConsumerStats(request_id=0, consumer_id=9))
