"""Producers: their names, what they may send, and what they are told about it."""

from __future__ import annotations

from typing import Any

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload


def metadata(**fields: Any) -> api.MessageMetadata:
    usual: dict[str, Any] = {"producer_name": "raw", "sequence_id": 0, "publish_time": 1}
    return api.MessageMetadata(**(usual | fields))


@scenario()
async def producers_with_and_without_a_name(world: World) -> None:
    client = await world.client()
    await client.producer(1)
    await client.producer(2)
    await client.producer(3, producer_name="mine")
    await client.producer(4, producer_name="mine", topic="other")
    await client.producer(5, producer_name="generated", user_provided_producer_name=False)


@scenario()
async def a_producer_name_that_is_taken(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.producer(1, producer_name="mine")
    await b.producer(1, producer_name="mine")
    await a.producer(2, producer_name="mine")
    await a.close_producer(1)
    await b.producer(1, producer_name="mine")
    await b.close()
    await world.settled_stats(lambda stats: not stats["publishers"])
    await a.producer(3, producer_name="mine")


@scenario()
async def a_producer_that_comes_again_with_an_epoch(world: World) -> None:
    a, b = await world.client("a"), await world.client("b")
    await a.producer(1, producer_name="mine", epoch=0, user_provided_producer_name=False)
    await b.producer(1, producer_name="mine", epoch=0, user_provided_producer_name=False)
    await b.producer(1, producer_name="mine", epoch=1, user_provided_producer_name=False)
    await a.take(1)
    await a.producer(1, producer_name="mine", epoch=0, user_provided_producer_name=False)
    await a.producer(1, producer_name="mine", epoch=1, user_provided_producer_name=False)
    await a.producer(1, producer_name="mine", epoch=2)
    await b.silence()


_ANOTHER = [
    "a",
    "> PRODUCER",
    {
        "producer_id": 1,
        "producer_name": "another",
        "topic": "persistent://diff/the-same-producer-id-twice/t",
    },
]


@scenario(
    wanted=[
        Wanted(
            (_ANOTHER, ["a", "< PRODUCER_SUCCESS", {"producer_name": "mine"}]),
            (_ANOTHER, ["a", "< PRODUCER_SUCCESS", {"producer_name": "another"}]),
            "who asks for another name is that from then on, not told that it has the first",
        )
    ]
)
async def the_same_producer_id_twice(world: World) -> None:
    client = await world.client()
    await client.producer(1, producer_name="mine")
    await client.producer(1, producer_name="mine")
    await client.producer(1, producer_name="another")
    await client.producer(1, "other", producer_name="mine")
    client.send(1, 0, "x")
    await client.receipts()


@scenario()
async def receipts_of_messages_and_batches(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send(1, 0, "first")
    client.send_batch(1, 1, ["a", "b", "c"])
    client.send(1, 4, "last")
    await client.receipts(3)


@scenario()
async def the_last_sequence_id_is_told_to_a_producer_of_that_name(world: World) -> None:
    client = await world.client()
    await client.producer(1, producer_name="mine")
    client.send(1, 7, "seven")
    await client.receipts()
    await client.close_producer()
    await client.producer(1, producer_name="mine")


@scenario()
async def sequence_ids_that_repeat_without_deduplication(world: World) -> None:
    client = await world.client()
    await client.producer(1, producer_name="mine")
    for sequence_id in (5, 5, 3):
        client.send(1, sequence_id, "x")
        await client.receipts()


@scenario(
    wanted=[
        Wanted(
            "Checksum failed on the broker",
            "checksum 0xfeba4c04 came with bytes whose checksum is 0x0cd1cf07",
            "both numbers tell more",
        )
    ]
)
async def a_checksum_that_is_wrong(world: World) -> None:
    client = await world.client()
    await client.producer()
    payload = bytearray(encode_payload(metadata(), b"hello"))
    payload[-1] ^= 1
    client.send_payload(1, 0, bytes(payload))
    await client.receipts()
    client.send(1, 1, "good")
    await client.receipts()


@scenario()
async def a_message_without_a_checksum(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send_payload(1, 0, encode_payload(metadata(), b"hello")[6:])
    await client.receipts()
    await client.subscribe()
    await client.messages(1)


@scenario()
async def a_message_that_is_too_large(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send(1, 0, b"x" * (5 * 1024 * 1024 - 200))
    await client.take(1)
    client.send(1, 1, b"x" * (5 * 1024 * 1024 + 100_000))
    await client.take(1)


_CLOSED = {"topic": "persistent://diff/a-message-for-a-producer-that-was-closed/t"}
_HERE = {"authoritative": True, "brokerServiceUrl": "pulsar://ADDRESS", "response": "Connect"}


@scenario()
async def a_message_for_a_producer_that_is_not_there(world: World) -> None:
    client = await world.client()
    client.send(9, 0, "x")
    await client.silence()
    await client.ping()


@scenario(
    wanted=[
        Wanted(
            "< end of connection",
            "< nothing",
            "what crossed the closing on its way ends no connection",
        ),
        Wanted(
            (["a", "> LOOKUP", _CLOSED], ["a", "< nothing"]),
            (["a", "> LOOKUP", _CLOSED], ["a", "< LOOKUP_RESPONSE", _HERE]),
            "which goes on",
        ),
    ]
)
async def a_message_for_a_producer_that_was_closed(world: World) -> None:
    client = await world.client()
    await client.producer()
    await client.close_producer()
    client.send(1, 0, "x")
    await client.silence()
    await client.lookup()


@scenario()
async def null_values_and_empty_ones(world: World) -> None:
    await world.filled([""], null_value=True)
    await world.filled([""])
    await world.filled([""], null_value=True, partition_key="k")
    client = await world.client()
    await client.subscribe()
    await client.messages(3)


@scenario()
async def keys_properties_and_times_are_kept(world: World) -> None:
    pair = api.KeyValue(key="colour", value="blue")
    await world.filled(["x"], partition_key="k", ordering_key=b"o", event_time=12345)
    await world.filled(["x"], properties=[pair, pair], replicate_to=["__local__"])
    await world.filled(["x"], partition_key="azE=", partition_key_b64_encoded=True)
    client = await world.client()
    await client.subscribe()
    await client.messages(3)


@scenario()
async def a_producer_makes_an_initial_subscription(world: World) -> None:
    client = await world.client()
    await client.producer(1, producer_name="dlq", initial_subscription_name="first")
    client.send(1, 0, "kept")
    await client.receipts()
    await client.subscribe(1, "first")
    await client.messages(1)


@scenario()
async def closing_a_producer(world: World) -> None:
    client = await world.client()
    await client.producer()
    client.send(1, 0, "x")
    await client.close_producer()
    await client.take(1, 1.0)
    await client.close_producer()
    await client.close_producer(5)


@scenario()
async def producers_of_a_namespace_with_encryption_required(world: World) -> None:
    await world.rest("POST", world.namespace_path("/encryptionRequired"), body=True)
    client = await world.client()
    await client.producer(1)
    await client.producer(2, encrypted=True)
    client.send(2, 0, "plain")
    await client.receipts()


@scenario()
async def more_producers_than_are_allowed(world: World) -> None:
    await world.rest("POST", world.namespace_path("/maxProducersPerTopic"), 2)
    client = await world.client()
    for producer_id in (1, 2, 3):
        await client.producer(producer_id)
    await client.close_producer(1)
    await client.producer(3)


@scenario()
async def chunks_of_a_message(world: World) -> None:
    chunk: dict[str, Any] = {"uuid": "raw-0", "num_chunks_from_msg": 2, "total_chunk_msg_size": 6}
    await world.filled(["abc"], chunk_id=0, **chunk)
    await world.filled(["def"], chunk_id=1, **chunk)
    client = await world.client()
    await client.subscribe()
    await client.messages(2)
