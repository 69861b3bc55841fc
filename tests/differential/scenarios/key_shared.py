"""Key_Shared subscriptions: which consumer gets which key, and what ranges may be asked for."""

from __future__ import annotations

from typing import Any

from tests.differential.patience import pause
from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

KEY_SHARED = api.CommandSubscribe.Key_Shared
KEYS = 200
PERMITS = 1000
SETTLE_S = 0.5


def sticky(*ranges: tuple[int, int], **fields: Any) -> api.KeySharedMeta:
    return api.KeySharedMeta(
        keySharedMode=api.STICKY,
        hashRanges=[api.IntRange(start=start, end=end) for start, end in ranges],
        **fields,
    )


def auto_split(**fields: Any) -> api.KeySharedMeta:
    return api.KeySharedMeta(keySharedMode=api.AUTO_SPLIT, **fields)


async def publish_keys(world: World) -> None:
    with world.transcript.quiet():
        client = await world.client("filler")
        await client.producer()
        for number in range(KEYS):
            client.send(1, number, f"{number}", partition_key=f"key-{number}")
        await client.receipts(KEYS)


async def shares(world: World, clients: list[Client]) -> None:
    """Write down which keys each client got."""
    await pause(SETTLE_S)
    plain = world.transcript.plain
    for client in clients:
        got = [plain.payload(arrival.payload)["body"] for arrival in client.arrivals()]
        world.note(f"keys of {client.name}", " ".join(got))


@scenario()
async def keys_are_split_between_three_consumers(world: World) -> None:
    clients = [await world.client(name) for name in ("left", "middle", "right")]
    for client in clients:
        await client.subscribe(1, kind=KEY_SHARED, consumer_name=client.name)
        client.flow(PERMITS)
    await publish_keys(world)
    await shares(world, clients)


@scenario()
async def keys_are_split_when_a_consumer_joins_and_another_leaves(world: World) -> None:
    left, right, third = [await world.client(name) for name in ("left", "right", "third")]
    for client in (left, right):
        await client.subscribe(1, kind=KEY_SHARED, consumer_name=client.name)
        client.flow(PERMITS)
    await right.close_consumer()
    await third.subscribe(1, kind=KEY_SHARED, consumer_name=third.name)
    third.flow(PERMITS)
    await publish_keys(world)
    await shares(world, [left, third])


@scenario()
async def keys_of_consumers_with_one_name(world: World) -> None:
    clients = [await world.client(name) for name in ("left", "right")]
    for client in clients:
        await client.subscribe(1, kind=KEY_SHARED, consumer_name="same")
        client.flow(PERMITS)
    await publish_keys(world)
    await pause(SETTLE_S)
    got = [len(client.arrivals()) for client in clients]
    world.note("all keys were delivered", sum(got) == KEYS)


@scenario()
async def keys_go_by_sticky_ranges(world: World) -> None:
    left, right = await world.client("left"), await world.client("right")
    await left.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((0, 20000)))
    await right.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((20001, 40000), (50000, 65535)))
    left.flow(PERMITS)
    right.flow(PERMITS)
    await publish_keys(world)
    await shares(world, [left, right])
    await world.stats(
        lambda stats: [stats["subscriptions"]["s"]["keySharedMode"], ranges_of(stats)]
    )


def ranges_of(stats: dict[str, Any]) -> object:
    consumers = stats["subscriptions"]["s"]["consumers"]
    return [each.get("keyHashRanges", each.get("keyHashRangeArrays")) for each in consumers]


_HOLDER = (
    "Consumer{subscription=PersistentSubscription{topic=persistent://diff/"
    "sticky-ranges-that-cannot-be/t, name=s}, consumerId=1, consumerName=a1, "
    "address=CHANNEL [SR:127.0.0.1, state:Connected]}"
)


@scenario(
    wanted=[
        Wanted(
            f"Range conflict with consumer {_HOLDER}",
            "Range conflict with consumer a1",
            "its name says it",
        )
    ]
)
async def sticky_ranges_that_cannot_be(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((100, 200), (300, 400)))
    odd = {
        "same": sticky((100, 200)),
        "overlap": sticky((150, 250)),
        "around": sticky((0, 500)),
        "touching": sticky((200, 250)),
        "none": sticky(),
        "backwards": sticky((900, 800)),
        "negative": sticky((-5, 5)),
        "beyond": sticky((60000, 70000)),
        "own overlap": sticky((1000, 2000), (1500, 2500)),
        "fine": sticky((201, 250)),
    }
    for consumer_id, (what, ranges) in enumerate(odd.items(), 2):
        world.note("asks for ranges", what)
        await client.subscribe(consumer_id, kind=KEY_SHARED, keySharedMeta=ranges)


@scenario()
async def key_shared_policies_that_do_not_agree(world: World) -> None:
    client = await world.client()
    await client.subscribe(1, kind=KEY_SHARED, keySharedMeta=auto_split())
    await client.subscribe(2, kind=KEY_SHARED, keySharedMeta=sticky((0, 65535)))
    loose = auto_split(allowOutOfOrderDelivery=True)
    await client.subscribe(3, kind=KEY_SHARED, keySharedMeta=loose)
    await client.subscribe(4, kind=KEY_SHARED)
    await client.close_consumer(1)
    await client.close_consumer(4)
    await client.subscribe(2, kind=KEY_SHARED, keySharedMeta=sticky((0, 65535)))
    await client.subscribe(5, kind=KEY_SHARED)


@scenario()
async def an_ordering_key_goes_before_a_key(world: World) -> None:
    left, right = await world.client("left"), await world.client("right")
    await left.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((0, 32767)))
    await right.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((32768, 65535)))
    with world.transcript.quiet():
        client = await world.client("filler")
        await client.producer()
        for number in range(20):
            key = f"key-{number}"
            client.send(1, number, f"{number}", partition_key=key, ordering_key=b"order")
        for number in range(20, 40):
            client.send(1, number, f"{number}", ordering_key=f"order-{number}".encode())
        for number in range(40, 60):
            client.send(1, number, f"{number}")
        for number in range(60, 80):
            key = f"a2V5{number}=="
            client.send(1, number, f"{number}", partition_key=key, partition_key_b64_encoded=True)
        await client.receipts(80)
    left.flow(PERMITS)
    right.flow(PERMITS)
    await shares(world, [left, right])


@scenario()
async def keys_of_batches_go_by_their_first_message(world: World) -> None:
    left, right = await world.client("left"), await world.client("right")
    await left.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((0, 32767)))
    await right.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((32768, 65535)))
    client = await world.client("filler")
    await client.producer()
    for number in range(6):
        keys = [f"key-{number}", f"key-{number + 100}"]
        client.send_batch(1, 2 * number, ["x", "y"], keys, partition_key=keys[0])
        client.send_batch(1, 100 + 2 * number, ["x", "y"], keys)
    await client.receipts(12)
    left.flow(PERMITS)
    right.flow(PERMITS)
    await left.silence(SETTLE_S)
    await right.silence(SETTLE_S)


@scenario()
async def a_key_waits_for_its_unacknowledged_messages(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(4)], partition_key="k")
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe(1, kind=KEY_SHARED, keySharedMeta=sticky((0, 65535)))
    await a.messages(2)
    await a.close_consumer()
    await b.subscribe(1, kind=KEY_SHARED)
    b.flow(10)
    await b.take(4)
    await b.acknowledge(*ids)
    await b.silence()


@scenario()
async def a_newcomer_waits_for_a_key_that_another_holds(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(2)], partition_key="k")
    first = await world.client("first")
    await first.subscribe(1, kind=KEY_SHARED, keySharedMeta=auto_split())
    await first.messages(1)
    others = [await world.client(f"other{number}") for number in range(6)]
    for client in others:
        await client.subscribe(1, kind=KEY_SHARED, keySharedMeta=auto_split())
        client.flow(10)
    first.flow(10)
    await pause(SETTLE_S)
    for client in (first, *others):
        client.leftovers()
    await first.acknowledge(ids[0])
    await pause(SETTLE_S)
    for client in (first, *others):
        client.leftovers()
