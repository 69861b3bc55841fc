"""A sanity test writes to the bookie in question and leaves nothing behind."""

from __future__ import annotations

from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_bookie.admin.sanity import is_sane
from geminga_bookie.admin.this_bookie import ORDERED

SANITY = "/api/v1/bookie/sanity"


def test_a_sound_bookie_passes_and_the_ledger_is_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get(SANITY)).json == {"passed": True, "readOnly": False}
        assert cluster.bookies[0].storage.ledgers.find(0) is not None
        assert cluster.bookies[1].storage.ledgers.find(0) is None
        assert (await cluster.get("/api/v1/ledger/list")).json == {}

    run(scenario)


def test_one_that_is_read_only_is_not_tried() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.put("/api/v1/bookie/state/readonly", {"readOnly": True})
        assert (await cluster.get(SANITY)).json == {"passed": False, "readOnly": True}

    run(scenario)


def test_a_bookie_that_takes_nothing_does_not_pass_by_another_ones_help() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.bookies[0].storage.refuse_adds(ORDERED)
        assert not await is_sane(cluster.access)
        assert (await cluster.get("/api/v1/ledger/list")).json == {}

    run(scenario)
