"""Messages that a producer sends again, where the broker keeps them from being stored twice."""

from __future__ import annotations

from tests.differential.scenario import scenario
from tests.differential.world import Client, World


async def deduplicated(world: World) -> Client:
    await world.rest("POST", world.namespace_path("/deduplication"), body=True)
    return await world.client()


@scenario()
async def a_message_sent_again(world: World) -> None:
    client = await deduplicated(world)
    await client.producer(1, producer_name="mine")
    for sequence_id in (0, 1, 1, 0, 2, 5, 4, 6):
        client.send(1, sequence_id, f"m{sequence_id}", producer_name="mine")
        await client.receipts()
    await client.subscribe()
    client.flow(10)
    await client.silence()


@scenario()
async def a_batch_sent_again(world: World) -> None:
    client = await deduplicated(world)
    await client.producer(1, producer_name="mine")
    for first, bodies in ((0, "abc"), (0, "abc"), (2, "cd"), (3, "de"), (5, "f")):
        client.send_batch(1, first, list(bodies), producer_name="mine")
        await client.receipts()


@scenario()
async def a_deduplicated_producer_comes_again(world: World) -> None:
    client = await deduplicated(world)
    await client.producer(1, producer_name="mine")
    client.send(1, 7, "seven", producer_name="mine")
    await client.receipts()
    await client.close_producer()
    await client.producer(1, producer_name="mine")
    client.send(1, 7, "seven", producer_name="mine")
    await client.receipts()
    await client.producer(2, producer_name="another")
    client.send(2, 7, "seven", producer_name="another")
    await client.receipts()


@scenario()
async def a_deduplicated_topic_is_unloaded(world: World) -> None:
    client = await deduplicated(world)
    await client.producer(1, producer_name="mine")
    for sequence_id in range(3):
        client.send(1, sequence_id, "x", producer_name="mine")
    await client.receipts(3)
    await world.rest("PUT", world.topic_path("t", "/unload"))
    await client.take(1)
    await client.lookup()
    await client.producer(1, producer_name="mine")
    for sequence_id in (2, 3):
        client.send(1, sequence_id, "x", producer_name="mine")
        await client.receipts()


@scenario()
async def the_deduplication_status_of_topics(world: World) -> None:
    await world.filled(["x"], "before")

    def status(stats: dict[str, object]) -> object:
        return stats["deduplicationStatus"]

    await world.stats(status, "before")
    await world.rest("GET", world.namespace_path("/deduplication"))
    await world.rest("POST", world.namespace_path("/deduplication"), body=True)
    await world.rest("GET", world.namespace_path("/deduplication"))
    await world.filled(["x"], "after")
    await world.stats(status, "after")
    await world.settled_stats(lambda stats: stats["deduplicationStatus"] == "Enabled", "before")
    await world.rest("DELETE", world.namespace_path("/deduplication"))
    await world.rest("GET", world.namespace_path("/deduplication"))
