"""Commands whose features are off or elsewhere: schemas, transactions, authentication."""

from __future__ import annotations

from tests.differential.plain import Json
from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_protocol.pulsar import api_pb2 as api

LIVES_ON = "what is not served is refused, and ends no connection"
NO_TRANSACTIONS = {"error": "NotAllowedError", "message": "Transactions are not enabled."}
FOUND = {"authoritative": True, "brokerServiceUrl": "pulsar://ADDRESS", "response": "Connect"}


def lives_on(name: str, *asked_and_answered: tuple[str, Json, str, Json]) -> list[Wanted]:
    """Where upstream ends the connection, ours refuses, and the next lookup is answered."""
    theirs: list[Json] = []
    ours: list[Json] = []
    ending = "< end of connection"
    for kind, asked, answer, answered in asked_and_answered:
        theirs += [["a", f"> {kind}", asked], ["a", ending]]
        ours += [["a", f"> {kind}", asked], ["a", f"< {answer}", answered]]
        ending = "< nothing"
    looked_up = ["a", "> LOOKUP", {"topic": f"persistent://diff/{name}/t"}]
    theirs += [looked_up, ["a", "< nothing"]]
    ours += [looked_up, ["a", "< LOOKUP_RESPONSE", FOUND]]
    return [Wanted(tuple(theirs), tuple(ours), LIVES_ON)]


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


@scenario(
    wanted=lives_on(
        "transactions-that-are-switched-off",
        ("END_TXN", {"txnid_least_bits": 1}, "END_TXN_RESPONSE", NO_TRANSACTIONS),
        (
            "ADD_PARTITION_TO_TXN",
            {"partitions": ["t"], "txnid_least_bits": 1},
            "ADD_PARTITION_TO_TXN_RESPONSE",
            NO_TRANSACTIONS,
        ),
    )
)
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


@scenario(
    wanted=lives_on(
        "an-answer-to-a-challenge-that-was-not-given",
        (
            "AUTH_RESPONSE",
            {"client_version": "raw"},
            "ERROR",
            {
                "error": "NotAllowedError",
                "message": "authResponse answers a challenge, and there was none",
                "request_id": "none",
            },
        ),
    )
)
async def an_answer_to_a_challenge_that_was_not_given(world: World) -> None:
    client = await world.client()
    client.post(api.CommandAuthResponse(client_version="raw"))
    await client.silence()
    await client.lookup()
