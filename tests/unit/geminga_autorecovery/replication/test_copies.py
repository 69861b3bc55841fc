"""Single copies are read as they are stored, and stored as they were read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.unit.geminga_autorecovery.cluster import LEDGER_OPTIONS, Cluster, metadata_of
from tests.unit.geminga_ledger.world import FIRST_PORT, KEY, entry_of

from geminga_autorecovery.decisions.findings import Flaw
from geminga_autorecovery.errors import CopyRefused
from geminga_autorecovery.replication.copies import Copies
from geminga_protocol.bookkeeper.codes import Flag, Operation, ReturnCode
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, BookieInfo

METADATA = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=4)
ENTRIES = {entry_id: entry_of(7, entry_id, entry_id - 1) for entry_id in range(5)}


@asynccontextmanager
async def copies_of(cluster: Cluster) -> AsyncGenerator[Copies]:
    registry, links = cluster.links()
    async with registry, links:
        yield Copies(links, answer_timeout_s=LEDGER_OPTIONS.answer_timeout_s)


async def test_each_bookie_gives_its_own_copy() -> None:
    cluster = Cluster(2)
    cluster.put_ledger(7, METADATA, without=[(1, 3)])
    cluster.damage(0, 7, 2)
    async with copies_of(cluster) as copies:
        wanted = [("b0", 0), ("b1", 0), ("b0", 2), ("b1", 2), ("b0", 3), ("b1", 3)]
        found = await copies.read(7, METADATA, wanted)
        assert [copy.flaw or copy.content for copy in found] == [
            *(ENTRIES[0], ENTRIES[0], Flaw.DAMAGED, ENTRIES[2], ENTRIES[3], Flaw.ABSENT),
        ]
        assert "digest" in found[2].why
        assert await copies.read(7, METADATA, []) == []


async def test_a_bookie_that_cannot_read_is_told_from_one_that_is_not_heard() -> None:
    cluster = Cluster(4)
    cluster.put_ledger(7, METADATA)
    cluster.bookies[1].kill()
    cluster.bookies[2].refusals[Operation.READ] = ReturnCode.EIO
    cluster.bookies[3].is_silent = True
    async with copies_of(cluster) as copies:
        wanted = [("b0", 1), ("b1", 1), ("b2", 1), ("b3", 1), ("nobody", 1)]
        found = await copies.read(7, METADATA, wanted)
        assert [copy.flaw for copy in found] == [
            *(None, Flaw.UNHEARD, Flaw.UNREADABLE, Flaw.UNHEARD, Flaw.UNHEARD),
        ]
        assert "EIO" in found[2].why
        assert found[3].why == f"no answer within {LEDGER_OPTIONS.answer_timeout_s:g} s"
        assert found[1].why
        assert found[4].why


async def test_a_bookie_registered_at_an_impossible_host_is_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(1)
    cluster.put_metadata(7, METADATA)
    record = BookieInfo.of_address("a\0b", 3181).encode()
    cluster.coordination.zookeeper.put(f"{AVAILABLE_PATH}/b0", record)
    # It refuses such a name before it asks for it anywhere.
    monkeypatch.setattr(cluster.network, "connect", asyncio.get_running_loop().create_connection)
    async with copies_of(cluster) as copies:
        (copy,) = await copies.read(7, METADATA, [("b0", 1)])
        assert copy.flaw == Flaw.UNHEARD
        with pytest.raises(CopyRefused):
            await copies.store(7, METADATA, "b0", ENTRIES)


async def test_a_connection_is_not_awaited_for_longer_than_an_answer() -> None:
    cluster = Cluster(1)
    cluster.put_metadata(7, METADATA)
    cluster.network.silent.add(FIRST_PORT)
    registry, links = cluster.links()
    async with registry, links:
        copies = Copies(links, answer_timeout_s=1)
        (copy,) = await copies.read(7, METADATA, [("b0", 1)])
        assert (copy.flaw, copy.why) == (Flaw.UNHEARD, "no connection within 1 s")
        with pytest.raises(CopyRefused, match="no connection within 1 s"):
            await copies.store(7, METADATA, "b0", ENTRIES)


async def test_a_connection_that_breaks_ends_the_wait() -> None:
    cluster = Cluster(1)
    cluster.bookies[0].is_holding = True
    cluster.put_metadata(7, METADATA)
    async with copies_of(cluster) as copies:
        loop = asyncio.get_running_loop()
        loop.call_later(1, cluster.bookies[0].drop_connections)
        begun_s = loop.time()
        (copy,) = await copies.read(7, METADATA, [("b0", 1)])
        assert (copy.flaw, copy.why) == (Flaw.UNHEARD, "the connection broke")
        assert loop.time() - begun_s < 2


async def test_copies_are_stored_as_recovery_stores_them() -> None:
    cluster = Cluster(1)
    bookie = cluster.bookies[0]
    bookie.fenced.add(7)
    async with copies_of(cluster) as copies:
        await copies.store(7, METADATA, "b0", ENTRIES)
    assert bookie.entries[7] == ENTRIES
    assert bookie.master_keys[7] == KEY
    assert bookie.count(Operation.ADD, Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY) == 5


async def test_what_a_lost_connection_swallowed_is_sent_again() -> None:
    cluster = Cluster(1)
    bookie = cluster.bookies[0]
    bookie.is_silent = True
    async with copies_of(cluster) as copies:

        def recover() -> None:
            bookie.is_silent = False
            bookie.drop_connections()

        asyncio.get_running_loop().call_later(1, recover)
        await copies.store(7, METADATA, "b0", ENTRIES)
    assert bookie.entries[7] == ENTRIES


@pytest.mark.parametrize("what", ["refuses", "is silent", "is gone"])
async def test_a_bookie_that_does_not_store_copies_is_named(what: str) -> None:
    cluster = Cluster(1)
    bookie = cluster.bookies[0]
    if what == "refuses":
        bookie.refusals[Operation.ADD, 3] = ReturnCode.EREADONLY
    elif what == "is silent":
        bookie.is_silent = True
    else:
        bookie.kill()
    async with copies_of(cluster) as copies:
        with pytest.raises(CopyRefused, match="b0 did not take copies of ledger 7"):
            await copies.store(7, METADATA, "b0", ENTRIES)
