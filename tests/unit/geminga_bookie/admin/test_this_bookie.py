"""A bookie says what it is, and takes the order to be read-only, as upstream's does."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_bookie.bookie import DISKS_FULL
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH


def test_it_says_that_it_lives_and_what_it_runs_with() -> None:
    async def scenario(cluster: Cluster) -> None:
        answer = await cluster.get("/heartbeat")
        assert (answer.status, answer.body) == (200, b"OK\n")
        answer = await cluster.get("/api/v1/config/server_config")
        assert answer.json == {"port": "3181", "sync": "True"}
        assert (await cluster.put("/api/v1/config/server_config", {"a": 1})).status == 404
        assert (await cluster.get("/api/v1/bookie/is_ready")).text == "OK"

    run(scenario)


def test_it_says_how_much_room_it_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        space = cluster.bookies[0].disk_space()
        answer = await cluster.get("/api/v1/bookie/info")
        assert answer.json == {"freeSpace": space.free_bytes, "totalSpace": space.total_bytes}

    run(scenario)


def test_it_becomes_read_only_by_order_and_writable_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = "/api/v1/bookie/state/readonly"
        assert (await cluster.get(path)).json == {"readOnly": False}
        assert (await cluster.put(path, {"readOnly": True})).json == {"readOnly": True}
        await asyncio.sleep(1)
        assert await cluster.coordination.exists(f"{READ_ONLY_PATH}/b1") is not None
        state = (await cluster.get("/api/v1/bookie/state")).json
        assert state == {
            "running": True,
            "readOnly": True,
            "shuttingDown": False,
            "availableForHighPriorityWrites": True,
        }
        assert (await cluster.put(path, {"readOnly": False})).json == {"readOnly": False}
        await asyncio.sleep(1)
        assert await cluster.coordination.exists(f"{AVAILABLE_PATH}/b1") is not None
        for wrong in ({}, {"readOnly": 1}, {"readOnly": True, "more": 1}, [1]):
            assert (await cluster.put(path, wrong)).status == 400

    run(scenario)


def test_an_order_does_not_make_a_full_bookie_writable() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.bookies[0].storage.refuse_adds(DISKS_FULL)
        answer = await cluster.put("/api/v1/bookie/state/readonly", {"readOnly": False})
        assert answer.json == {"readOnly": True}
        state = (await cluster.get("/api/v1/bookie/state")).json
        assert not state["availableForHighPriorityWrites"]

    run(scenario)


def test_one_whose_journal_failed_is_not_ready() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.bookies[0].failed.set()
        assert (await cluster.get("/api/v1/bookie/is_ready")).status == 503
        state = (await cluster.get("/api/v1/bookie/state")).json
        assert (state["running"], state["shuttingDown"]) == (False, True)

    run(scenario)


def test_it_says_where_its_journal_would_be_replayed_from_and_which_files_it_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.write(b"one")
        await cluster.bookies[0].checkpointer.run()
        mark = cluster.bookies[0].storage.index.journal_marks()[0]
        name = f"{mark.file_number:012d}.journal"
        assert (await cluster.get("/api/v1/bookie/last_log_mark")).json == {
            f"LastLogMark: Journal Id - {mark.file_number}({name})": f"Pos - {mark.offset}"
        }
        path = "/api/v1/bookie/list_disk_file"
        everything = (await cluster.get(path)).json
        assert everything["entrylog files"] == "000000000001.entries\t"
        assert name in everything["journal files"]
        assert everything["index files"] == "000004.sst\t"
        journal = (await cluster.get(f"{path}?file_type=journal")).json
        assert journal == {"journal files": everything["journal files"]}

    run(scenario)
