"""Messages that are to be delivered later: their order, and that none comes early."""

from __future__ import annotations

import time
from typing import Any

from tests.differential.scenario import scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
# The broker looks once a second which messages are due.
LATE_S_MAX = 3.5


def in_seconds(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


async def delayed(client: Client, delays_s: tuple[float, ...]) -> None:
    for number, delay_s in enumerate(delays_s):
        fields: dict[str, Any] = {"deliver_at_time": in_seconds(delay_s)} if delay_s else {}
        client.send(1, number, f"after {delay_s} s", **fields)
    await client.receipts(len(delays_s))


@scenario()
async def delayed_messages_come_in_the_order_of_their_times(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    client.flow(10)
    began = time.time()
    await delayed(client, (4, 2, 0))
    await client.take(1)
    for delay_s in (2, 4):
        await client.take(1)
        waited_s = time.time() - began
        world.note(f"came after {delay_s} s, not early", waited_s >= delay_s - 0.01)
        world.note(f"came after {delay_s} s, not late", waited_s < delay_s + LATE_S_MAX)


@scenario()
async def only_shared_subscriptions_mind_delays(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe(1, "exclusive", SUBSCRIBE.Exclusive)
    await client.subscribe(2, "failover", SUBSCRIBE.Failover)
    await client.silence()
    await client.subscribe(3, "shared", SUBSCRIBE.Shared)
    await client.subscribe(4, "key-shared", SUBSCRIBE.Key_Shared)
    await delayed(client, (60,))
    for consumer_id in (1, 2, 3, 4):
        client.flow(5, consumer_id)
        await client.silence()


@scenario()
async def delayed_messages_wait_behind_others(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await delayed(client, (60, 0, 60, 0))
    client.flow(10)
    await client.silence()
    await world.stats(
        lambda stats: [stats["subscriptions"]["s"][name] for name in ("msgBacklog", "msgDelayed")]
    )


@scenario()
async def messages_that_were_due_long_ago(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await delayed(client, (-60, 0))
    client.flow(10)
    await client.silence()


@scenario()
async def delayed_delivery_is_switched_off(world: World) -> None:
    policy = {"active": False, "tickTime": 1000}
    await world.rest("POST", world.namespace_path("/delayedDelivery"), policy)
    await world.rest("GET", world.namespace_path("/delayedDelivery"))
    client = await world.client()
    await client.producer()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await delayed(client, (60,))
    client.flow(5)
    await client.silence()


@scenario()
async def a_consumer_of_delayed_messages_comes_again(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await delayed(client, (3, 60))
    client.flow(5)
    await client.silence()
    await client.close_consumer()
    await client.subscribe(2, kind=SUBSCRIBE.Shared)
    client.flow(5, 2)
    await client.take(1)
    await client.silence()


@scenario()
async def delays_longer_than_allowed(world: World) -> None:
    policy = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}
    await world.rest("POST", world.namespace_path("/delayedDelivery"), policy)
    client = await world.client()
    await client.producer()
    for number, delay_s in enumerate((60, 3)):
        client.send(
            1,
            number,
            deliver_at_time=in_seconds(delay_s),
            publish_time=in_seconds(0),
        )
        await client.receipts()
