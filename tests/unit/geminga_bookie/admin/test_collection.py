"""Garbage collection is begun by order and told of, as upstream does."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster, run

GC = "/api/v1/bookie/gc"


def test_an_order_begins_a_collection_and_details_tell_of_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get(GC)).json == {"is_in_force_gc": "false"}
        before = (await cluster.get("/api/v1/bookie/gc_details")).json
        answer = await cluster.put(GC)
        assert (answer.status, answer.json) == (200, "Triggered GC on BookieServer: b1")
        await asyncio.sleep(1)
        (after,) = (await cluster.get("/api/v1/bookie/gc_details")).json
        assert after["majorCompactionCounter"] == 1
        assert after["lastMajorCompactionTime"] >= before[0]["lastMajorCompactionTime"]
        assert not after["forceCompacting"]

    run(scenario)


def test_compactions_can_be_left_out() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.put(GC, {"forceMajor": "false"})).status == 200
        await asyncio.sleep(1)
        (details,) = (await cluster.get("/api/v1/bookie/gc_details")).json
        assert (details["majorCompactionCounter"], details["minorCompactionCounter"]) == (0, 1)

    run(scenario)


def test_a_second_order_while_one_goes_on_changes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        collector = cluster.bookies[0].collector
        assert collector is not None
        collector.is_forced = True
        assert (await cluster.get(GC)).json == {"is_in_force_gc": "true"}
        assert (await cluster.put(GC)).status == 200
        await asyncio.sleep(1)
        assert collector.collected.major_compactions == 0

    run(scenario)


def test_a_second_order_while_the_first_still_writes_to_a_slow_disk_changes_nothing() -> None:
    """A collection begins with a checkpoint, which may take long: it is a part of it."""

    async def scenario(cluster: Cluster) -> None:
        for _ in range(2):  # the first has not come further than to its answer
            assert (await cluster.put(GC)).status == 200
            assert (await cluster.get(GC)).json == {"is_in_force_gc": "true"}
        await asyncio.sleep(1)
        assert (await cluster.get(GC)).json == {"is_in_force_gc": "false"}
        (details,) = (await cluster.get("/api/v1/bookie/gc_details")).json
        assert details["majorCompactionCounter"] == 1

    run(scenario)


SUSPEND, RESUME = f"{GC}/suspend_compaction", f"{GC}/resume_compaction"


def suspended(*, minor: bool, major: bool) -> dict[str, str]:
    words = {False: "false", True: "true"}
    return {"isMinorGcSuspended": words[minor], "isMajorGcSuspended": words[major]}


def test_compactions_are_suspended_and_resumed() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get(SUSPEND)).json == suspended(minor=False, major=False)
        answer = await cluster.put(SUSPEND, {"suspendMajor": True, "suspendMinor": True})
        assert answer.json == (
            "Suspend majorGC on BookieServer: b1, Suspend minorGC on BookieServer: b1"
        )
        answer = await cluster.put(RESUME, {"resumeMinor": True, "resumeMajor": False})
        assert answer.json == "Resume minorGC on BookieServer: b1"
        assert (await cluster.get(SUSPEND)).json == suspended(minor=False, major=True)
        assert (await cluster.put(GC)).status == 200
        await asyncio.sleep(1)
        (details,) = (await cluster.get("/api/v1/bookie/gc_details")).json
        assert (details["majorCompactionCounter"], details["minorCompactionCounter"]) == (0, 1)
        await cluster.put(GC, {"forceMajor": True})  # that this one shall be done goes before
        await asyncio.sleep(1)
        (details,) = (await cluster.get("/api/v1/bookie/gc_details")).json
        assert details["majorCompactionCounter"] == 1

    run(scenario)


def test_orders_to_suspend_or_resume_nothing_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        for path, verb in ((SUSPEND, "suspend"), (RESUME, "resume")):
            assert (await cluster.put(path)).text == "Empty request body"
            answer = await cluster.put(path, {})
            assert (answer.status, answer.text) == (
                400,
                f"No {verb}Major or {verb}Minor params found",
            )
            assert (await cluster.put(path, {f"{verb}Major": 1})).status == 400
        assert (await cluster.get(RESUME)).status == 404

    run(scenario)


@pytest.mark.parametrize("content", [{"forceMajor": 1}, {"forceMinor": "maybe"}, [1]])
def test_an_order_that_makes_no_sense_is_refused(content: object) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.put(GC, content)).status == 400

    run(scenario)
