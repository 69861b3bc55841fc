"""Commands whose features are off or elsewhere: schemas, transactions, authentication."""

from __future__ import annotations

from tests.differential.scenario import scenario
from tests.differential.world import World

from magnetar_protocol.pulsar import api_pb2 as api


@scenario()
async def schemas_of_topics_without_one(world: World) -> None:
    await world.filled(["x"])
    client = await world.client()
    await client.ask(api.CommandGetSchema(request_id=0, topic=world.topic("t")))
    await client.ask(api.CommandGetSchema(request_id=0, topic=world.topic("absent")))
    version = (0).to_bytes(8, "big")
    await client.ask(
        api.CommandGetSchema(request_id=0, topic=world.topic("t"), schema_version=version)
    )


@scenario()
async def transactions_that_are_switched_off(world: World) -> None:
    client = await world.client()
    await client.ask(api.CommandTcClientConnectRequest(request_id=0, tc_id=0))
    await client.ask(api.CommandNewTxn(request_id=0, txn_ttl_millis=1000, tc_id=0))
    await client.ask(api.CommandEndTxn(request_id=0, txnid_least_bits=1, txnid_most_bits=0))
    await client.ask(
        api.CommandAddPartitionToTxn(request_id=0, txnid_least_bits=1, partitions=["t"])
    )
    await client.lookup()


@scenario()
async def a_message_in_a_transaction(world: World) -> None:
    client = await world.client()
    await client.producer(1, txn_enabled=True)
    await client.lookup()


@scenario()
async def an_answer_to_a_challenge_that_was_not_given(world: World) -> None:
    client = await world.client()
    client.post(api.CommandAuthResponse(client_version="raw"))
    await client.silence()
    await client.lookup()
