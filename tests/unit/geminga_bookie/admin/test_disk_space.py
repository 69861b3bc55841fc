"""A bookie is asked for its room, and what it may answer is understood."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.admin.answering import ADDRESS, client_of, response_of

from geminga_bookie.admin.disk_space import BookieSpace, ask_space
from geminga_ledger.errors import BookieUnavailable
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World


def test_free_and_total_room_are_told() -> None:
    async def scenario() -> None:
        response = response_of(pb.GET_BOOKIE_INFO, pb.EOK)
        response.getBookieInfoResponse.status = pb.EOK
        response.getBookieInfoResponse.freeDiskSpace = 3
        response.getBookieInfoResponse.totalDiskCapacity = 7
        async with World() as world:
            network = await client_of(world, response)
            assert await ask_space(network, "b1", ADDRESS) == BookieSpace(3, 7)

    simulate(1, scenario)


@pytest.mark.parametrize("status", [pb.EUA, pb.EOK])
def test_a_refusal_and_an_answer_without_content_are_none(status: pb.StatusCode.ValueType) -> None:
    async def scenario() -> None:
        async with World() as world:
            network = await client_of(world, response_of(pb.GET_BOOKIE_INFO, status))
            with pytest.raises(BookieUnavailable, match=f"status {status}"):
                await ask_space(network, "b1", ADDRESS)

    simulate(1, scenario)
