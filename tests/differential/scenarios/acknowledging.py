"""What was acknowledged does not come again, and the rest does: redelivery, counts, receipts."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

SUBSCRIBE = api.CommandSubscribe
PERMITS = 100
BATCH_OF_FIVE = ["a", "b", "c", "d", "e"]


def part_of_batch(message_id: api.MessageIdData, unacknowledged: int) -> api.MessageIdData:
    """The id of a batch with the set of bits of those messages that are still wanted."""
    return api.MessageIdData(
        ledgerId=message_id.ledgerId,
        entryId=message_id.entryId,
        ack_set=[unacknowledged],
        batch_size=len(BATCH_OF_FIVE),
    )


async def with_batch(world: World, kind: api.CommandSubscribe.SubType.ValueType) -> Client:
    client = await world.client()
    await client.producer()
    client.send_batch(1, 0, BATCH_OF_FIVE)
    client.send(1, 5, "f")
    await client.receipts(2)
    await client.subscribe(1, kind=kind)
    client.flow(PERMITS)
    return client


@scenario()
async def individual_and_cumulative_acknowledgements(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(6)])
    client = await world.client()
    await client.subscribe()
    await client.messages(6)
    await client.acknowledge(ids[1], cumulative=True)
    await client.acknowledge(ids[3], ids[4])
    client.redeliver()
    await client.messages(2)
    await client.silence()


@scenario()
async def acknowledging_twice(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(2)
    await client.acknowledge(ids[0])
    await client.acknowledge(ids[0])
    await client.acknowledge(ids[0], ids[0], ids[1])


@scenario(
    wanted=[
        Wanted(
            (["a", "< nothing"],),
            (
                [
                    "a",
                    "< ACK_RESPONSE",
                    {
                        "consumer_id": 9,
                        "error": "ConsumerNotFound",
                        "message": "the consumer is not connected",
                    },
                ],
            ),
            "who asked for a receipt must not wait in vain",
        )
    ]
)
async def acknowledging_what_is_not_there(world: World) -> None:
    ids = await world.filled(["m0"])
    ledger = ids[0].ledgerId
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(1)
    with world.transcript.quiet():
        await client.acknowledge(api.MessageIdData(ledgerId=ledger + 10_000, entryId=0))
        await client.acknowledge(api.MessageIdData(ledgerId=0, entryId=0))
    await client.acknowledge(api.MessageIdData(ledgerId=ledger, entryId=50))
    await client.acknowledge(ids[0], consumer_id=9)
    await client.acknowledge()
    await client.lookup()


@scenario(
    wanted=[
        Wanted(
            (["a", "< ACK_RESPONSE", {"consumer_id": 1}],),
            (
                [
                    "a",
                    "< ACK_RESPONSE",
                    {
                        "consumer_id": 1,
                        "error": "MetadataError",
                        "message": "there is no such message yet",
                    },
                ],
            ),
            "upstream acknowledges nothing either, but calls that a success",
        )
    ]
)
async def acknowledging_cumulatively_what_is_not_there(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    ledger = ids[0].ledgerId
    client = await world.client()
    await client.subscribe()
    await client.messages(2)
    await client.acknowledge(api.MessageIdData(ledgerId=ledger, entryId=50), cumulative=True)
    client.redeliver()
    client.flow(2)
    await client.silence()


@scenario(
    wanted=[
        Wanted(
            (["a", "< ACK_RESPONSE", {"consumer_id": 1}],),
            (
                [
                    "a",
                    "< ACK_RESPONSE",
                    {
                        "consumer_id": 1,
                        "error": "NotAllowedError",
                        "message": "cumulative acknowledgement needs an Exclusive or Failover "
                        "subscription",
                    },
                ],
            ),
            "upstream acknowledges nothing and says that all is well",
        )
    ]
)
async def acknowledging_cumulatively_on_a_shared_subscription(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(2)
    await client.acknowledge(ids[1], cumulative=True)
    client.redeliver()
    await client.messages(2)


@scenario(
    wanted=[
        Wanted(
            (["a", "< ACK_RESPONSE", {"consumer_id": 1}],),
            (
                [
                    "a",
                    "< ACK_RESPONSE",
                    {
                        "consumer_id": 1,
                        "error": "MetadataError",
                        "message": "a cumulative acknowledgement names exactly one message",
                    },
                ],
            ),
            "upstream acknowledges nothing and says that all is well",
        )
    ]
)
async def acknowledging_cumulatively_several_at_once(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"])
    client = await world.client()
    await client.subscribe()
    await client.messages(3)
    await client.acknowledge(ids[0], ids[1], cumulative=True)
    await client.acknowledge(cumulative=True)
    client.redeliver()
    client.flow(3)
    await client.silence()


@scenario()
async def acknowledging_backwards(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"])
    client = await world.client()
    await client.subscribe()
    await client.messages(3)
    await client.acknowledge(ids[1], cumulative=True)
    await client.acknowledge(ids[0], cumulative=True)
    await client.acknowledge(ids[0])
    client.redeliver()
    client.flow(3)
    await client.silence()


@scenario()
async def acknowledging_before_receiving(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.acknowledge(ids[1])
    await client.messages(2)
    await client.silence()


@scenario()
async def messages_come_again_all_of_them(world: World) -> None:
    for kind in (SUBSCRIBE.Exclusive, SUBSCRIBE.Shared, SUBSCRIBE.Key_Shared):
        topic = f"t{kind}"
        await world.filled(["m0", "m1", "m2"], topic, partition_key="k")
        client = await world.client(f"client{kind}")
        await client.subscribe(1, kind=kind, topic=topic)
        await client.messages(3)
        client.redeliver()
        await client.messages(3)
        client.redeliver()
        await client.messages(3)


@scenario()
async def messages_come_again_by_their_ids(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(5)])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(4)
    client.redeliver(ids[2])
    await client.messages(2)
    client.redeliver(ids[3], ids[0], ids[1])
    await client.messages(3)
    client.redeliver(ids[2])
    client.redeliver(ids[2])
    client.flow(3)
    await client.take(1)
    await client.silence()


@scenario()
async def messages_come_again_by_their_ids_on_an_exclusive_subscription(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"])
    client = await world.client()
    await client.subscribe()
    await client.messages(2)
    client.redeliver(ids[0])
    client.flow(5)
    await client.silence()


@scenario()
async def acknowledged_messages_do_not_come_again(world: World) -> None:
    ids = await world.filled(["m0", "m1", "m2"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(3)
    await client.acknowledge(ids[1])
    client.redeliver(ids[1], ids[2])
    client.flow(3)
    await client.take(1)
    await client.silence()


FIRST_MESSAGE = {
    "body": "m0",
    "consumer_id": 2,
    "message_id": "L0:0",
    "metadata": {"producer_name": "raw", "sequence_id": 0},
}


@scenario(
    wanted=[
        Wanted(
            FIRST_MESSAGE,
            FIRST_MESSAGE | {"redelivery_count": 3},
            "counts outlive their consumers, or a poisonous message never reaches its limit",
        )
    ]
)
async def redelivery_counts_grow(world: World) -> None:
    ids = await world.filled(["m0"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(1)
    for _ in range(3):
        client.redeliver(ids[0])
        await client.messages(1)
    await client.close_consumer()
    await client.subscribe(2, kind=SUBSCRIBE.Shared)
    await client.messages(1, consumer_id=2)


@scenario()
async def redelivery_counts_of_another_consumer(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    a, b = await world.client("a"), await world.client("b")
    await a.subscribe(1, kind=SUBSCRIBE.Shared)
    await a.messages(2)
    await b.subscribe(1, kind=SUBSCRIBE.Shared)
    b.redeliver(ids[0])
    b.flow(2)
    await b.silence()
    a.redeliver(ids[0])
    await b.take(1)
    await a.close_consumer()
    await b.take(1)


TWO_OF_A_BATCH = {
    "ack_set": [0b10010],
    "batch": [{"body": body, "sequence_id": number} for number, body in enumerate(BATCH_OF_FIVE)],
    "consumer_id": 1,
    "message_id": "L0:0",
    "metadata": {
        "highest_sequence_id": 4,
        "num_messages_in_batch": 5,
        "producer_name": "raw",
        "sequence_id": 0,
    },
}


@scenario(
    wanted=[
        Wanted(
            TWO_OF_A_BATCH | {"redelivery_count": 1},
            TWO_OF_A_BATCH | {"redelivery_count": 2},
            "an acknowledgement of others of its batch does not undo that a message was given back",
        )
    ]
)
async def messages_of_batches_are_acknowledged_one_by_one(world: World) -> None:
    client = await with_batch(world, SUBSCRIBE.Shared)
    batch, single = await client.arriving(2)
    await client.acknowledge(part_of_batch(batch, 0b11010))
    client.redeliver(batch, single)
    await client.arriving(2)
    await client.acknowledge(part_of_batch(batch, 0b10111))
    client.redeliver(batch)
    await client.arriving(1)
    await client.acknowledge(part_of_batch(batch, 0b01101), single)
    client.redeliver()
    await client.silence()
    await world.stats(lambda stats: backlog(stats))


def backlog(stats: dict[str, dict[str, dict[str, object]]]) -> object:
    subscription = stats["subscriptions"]["s"]
    return [subscription["msgBacklog"], subscription["unackedMessages"]]


@scenario()
async def a_batch_is_acknowledged_cumulatively_in_part(world: World) -> None:
    client = await with_batch(world, SUBSCRIBE.Exclusive)
    batch, single = await client.arriving(2)
    await client.acknowledge(part_of_batch(batch, 0b11100), cumulative=True)
    client.redeliver()
    await client.arriving(2)
    await client.acknowledge(single, cumulative=True)
    client.redeliver()
    await client.silence()


@scenario()
async def parts_of_batches_stay_acknowledged_for_the_next_consumer(world: World) -> None:
    client = await with_batch(world, SUBSCRIBE.Shared)
    batch, _ = await client.arriving(2)
    await client.acknowledge(part_of_batch(batch, 0b11110))
    await client.close_consumer()
    await client.subscribe(2, kind=SUBSCRIBE.Shared)
    client.flow(PERMITS, 2)
    await client.arriving(2)


@scenario()
async def a_batch_with_an_odd_ack_set(world: World) -> None:
    client = await with_batch(world, SUBSCRIBE.Shared)
    batch, single = await client.arriving(2)
    for odd in (0b100000, 2**40):
        await client.acknowledge(part_of_batch(batch, odd))
    single.ack_set.append(1)
    await client.acknowledge(single)
    client.redeliver()
    await client.silence()


@scenario()
async def unacknowledged_messages_are_counted(world: World) -> None:
    ids = await world.filled([f"m{number}" for number in range(4)])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(3)
    await world.stats(lambda stats: backlog(stats))
    await client.acknowledge(ids[0])
    await world.stats(lambda stats: backlog(stats))
    client.redeliver(ids[1])
    await client.ping()
    await world.stats(lambda stats: backlog(stats))


@scenario()
async def a_consumer_that_acknowledges_nothing_is_stopped(world: World) -> None:
    await world.rest("POST", world.namespace_path("/maxUnackedMessagesPerConsumer"), 3)
    ids = await world.filled([f"m{number}" for number in range(8)])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    client.flow(8)
    with world.transcript.quiet():
        got = await client.take(8, 0.6)
    world.note("got before it acknowledged", len(got))
    await world.stats(
        lambda stats: stats["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]
    )
    await client.acknowledge(*ids[:3])
    with world.transcript.quiet():
        got = await client.take(8, 0.6)
    world.note("got after it acknowledged", len(got))


@scenario()
async def validation_errors_count_as_acknowledgements(world: World) -> None:
    ids = await world.filled(["m0", "m1"])
    client = await world.client()
    await client.subscribe(1, kind=SUBSCRIBE.Shared)
    await client.messages(2)
    await client.ask(
        api.CommandAck(
            consumer_id=1,
            ack_type=api.CommandAck.Individual,
            message_id=[ids[0]],
            validation_error=api.CommandAck.ChecksumMismatch,
        )
    )
    client.redeliver()
    client.flow(2)
    await client.silence()
