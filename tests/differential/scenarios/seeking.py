"""Moving a subscription: SEEK by id and by time, and what consumers are told about it."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
FIRST_MS = 1_700_000_000_000
EARLIEST = api.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
LATEST = api.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)


async def five_messages(world: World) -> list[api.MessageIdData]:
    """m0 to m4, published one second apart."""
    with world.transcript.quiet():
        client = await world.client("filler")
        await client.producer()
        for number in range(5):
            client.send(1, number, f"m{number}", publish_time=FIRST_MS + 1000 * number)
        ids = await client.receipts(5)
        await client.close_producer()
    world.transcript.plain.ledger(ids[0].ledgerId)
    return ids


async def reader(
    world: World, kind: api.CommandSubscribe.SubType.ValueType = SUBSCRIBE.Exclusive
) -> Client:
    client = await world.client()
    await client.subscribe(1, kind=kind)
    with world.transcript.quiet():
        await client.messages(5)
    return client


async def again(client: Client, kind: api.CommandSubscribe.SubType.ValueType) -> None:
    """Take CLOSE_CONSUMER, subscribe again and write down what comes."""
    await client.take(1)
    await client.subscribe(1, kind=kind)
    client.flow(10)
    await client.silence()


@scenario()
async def seeking_a_message(world: World) -> None:
    for kind in (SUBSCRIBE.Exclusive, SUBSCRIBE.Shared):
        ids = await five_messages(world)
        client = await reader(world, kind)
        await client.seek(message_id=ids[3])
        await again(client, kind)
        await client.unsubscribe()


@scenario()
async def seeking_earliest_and_latest(world: World) -> None:
    await five_messages(world)
    client = await reader(world)
    await client.seek(message_id=LATEST)
    await again(client, SUBSCRIBE.Exclusive)
    await client.seek(message_id=EARLIEST)
    await again(client, SUBSCRIBE.Exclusive)


@scenario()
async def seeking_a_time(world: World) -> None:
    await five_messages(world)
    client = await reader(world)
    for time_ms in (FIRST_MS + 2000, FIRST_MS + 2001, FIRST_MS - 1, FIRST_MS + 999_000, 0):
        world.note("seeking a time, milliseconds after the first", time_ms - FIRST_MS)
        await client.seek(message_publish_time=time_ms)
        await again(client, SUBSCRIBE.Exclusive)


@scenario()
async def seeking_into_a_batch(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send_batch(1, 0, ["a", "b", "c", "d"])
    client.send(1, 4, "e")
    batch, _ = await client.receipts(2)
    await client.subscribe()
    client.flow(10)
    await client.take(2)
    await client.seek(
        message_id=api.MessageIdData(
            ledgerId=batch.ledgerId,
            entryId=batch.entryId,
            ack_set=[0b1100],
            batch_size=4,
            batch_index=2,
        )
    )
    await again(client, SUBSCRIBE.Exclusive)


@scenario()
async def seeking_odd_ids(world: World) -> None:
    ids = await five_messages(world)
    client = await reader(world)
    for entry in (4, 5, 77):
        await client.seek(message_id=api.MessageIdData(ledgerId=ids[0].ledgerId, entryId=entry))
        await again(client, SUBSCRIBE.Exclusive)
    await client.seek(message_id=api.MessageIdData(ledgerId=0, entryId=0))
    await again(client, SUBSCRIBE.Exclusive)
    await client.seek()
    await client.seek(9, message_id=ids[0])
    await client.silence()


@scenario()
async def seeking_a_non_durable_subscription(world: World) -> None:
    ids = await five_messages(world)
    client = await world.client()
    await client.subscribe(1, "reader", durable=False)
    await client.messages(2)
    await client.seek(message_id=ids[3])
    await client.take(1)
    await client.subscribe(1, "reader", durable=False)
    client.flow(10)
    await client.silence()


@scenario()
async def seeking_with_several_consumers(world: World) -> None:
    ids = await five_messages(world)
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe(1, kind=SUBSCRIBE.Shared)
    await b.subscribe(1, kind=SUBSCRIBE.Shared)
    await a.seek(message_id=ids[3])
    await a.take(1)
    await b.take(1)
    await b.subscribe(1, kind=SUBSCRIBE.Shared)
    b.flow(10)
    await b.silence()


_FORGOTTEN = "/admin/v2/persistent/diff/seeking-forgets-acknowledgements/t/stats"


@scenario(
    wanted=[
        Wanted(
            ["rest", f"GET {_FORGOTTEN}", 200, 2],
            ["rest", f"GET {_FORGOTTEN}", 200, 4],
            "as many as came again; upstream still counts two of them as acknowledged",
        )
    ]
)
async def seeking_forgets_acknowledgements(world: World) -> None:
    ids = await five_messages(world)
    client = await reader(world)
    await client.acknowledge(ids[0], ids[2], ids[4])
    await client.seek(message_id=ids[1])
    await again(client, SUBSCRIBE.Exclusive)
    await world.stats(lambda stats: stats["subscriptions"]["s"]["msgBacklog"])


@scenario()
async def the_last_message_id(world: World) -> None:
    client = await world.client()
    await client.subscribe()
    await client.last_message_id()
    await client.producer()
    client.send(1, 0, "x")
    await client.receipts()
    await client.last_message_id()
    client.send_batch(1, 1, ["a", "b", "c"])
    (batch,) = await client.receipts()
    await client.last_message_id()
    client.flow(10)
    (first, _) = await client.arriving(2)
    await client.acknowledge(first)
    await client.last_message_id()
    await client.acknowledge(batch)
    await client.last_message_id()
    await client.last_message_id(9)


@scenario()
async def the_last_message_id_of_a_reader(world: World) -> None:
    await world.filled(["a", "b"])
    client = await world.client()
    await client.subscribe(
        1, "reader", durable=False, start_message_id=LATEST, initialPosition=SUBSCRIBE.Latest
    )
    await client.last_message_id()


@scenario()
async def an_epoch_of_a_consumer_drops_what_is_older(world: World) -> None:
    await five_messages(world)
    client = await world.client()
    await client.subscribe(consumer_epoch=0)
    await client.messages(2)
    client.post(api.CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=1))
    await client.messages(2)
