"""A bookie is asked which entries it has; one that knows of no ledger has none."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.admin.answering import ADDRESS, client_of, response_of
from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_bookie.admin.entry_list import ask_entry_list
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import Run
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


def test_a_bookie_tells_the_entries_of_an_open_ledger() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one", b"two", b"three", is_open=True)
        network, address = cluster.access.network, ("b2", 3181)
        assert await ask_entry_list(network, "b2", address, ledger_id) == [Run(0, 2)]
        assert await ask_entry_list(network, "b2", address, ledger_id + 1) == []

    run(scenario)


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 64, b"\0" * 65])
def test_what_cannot_be_understood_is_told(content: bytes | None) -> None:
    async def scenario() -> None:
        response = response_of(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, pb.EOK)
        if content is not None:
            answer = response.getListOfEntriesOfLedgerResponse
            answer.status, answer.ledgerId = pb.EOK, 1
            answer.availabilityOfEntriesOfLedger = content
        async with World() as world:
            network = await client_of(world, response)
            with pytest.raises(BookieUnavailable, match="b1"):
                await ask_entry_list(network, "b1", ADDRESS, 1)

    simulate(1, scenario)
