"""Ledgers go when ZooKeeper says that they are gone, never otherwise; their logs go with them."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.geminga_bookie.fakes import end_session, make_add
from tests.unit.geminga_bookie.garbage_rig import (
    NEVER,
    Moments,
    add,
    announce,
    code_of,
    fence,
    register,
    require,
    require_fenced,
    settle,
    unregister,
)
from tests.unit.geminga_bookie.host import CONFIG, Host

from geminga_bookie.config import GarbageConfig
from geminga_bookie.decisions.garbage import CompactionKind
from geminga_bookie.entry_logs.entry_log import EntryLog
from geminga_bookie.formats.entry_log_v1 import file_name
from geminga_bookie.formats.index_v2 import Counts
from geminga_bookie.garbage import ledger_deletion as module
from geminga_bookie.garbage.ledger_deletion import StrangeCluster
from geminga_protocol.bookkeeper.v2 import ReturnCode, encode_read
from geminga_protocol.records.bookies.bookie_info import READ_ONLY_PATH
from geminga_protocol.records.ledgers.ledger_metadata import (
    INSTANCE_ID_PATH,
    LedgerState,
    ledger_path,
)
from geminga_protocol.records.ledgers.underreplication import lock_path
from geminga_runtime.coordination import ConnectionLost, CoordinationError

# What a forced round compacts: every log that is not almost all of use.
NEARLY_ALL = GarbageConfig(gc_interval_s=0, major_compaction_threshold=0.95)


def make_host(**changes: object) -> Host:
    values: dict[str, object] = {
        "garbage": NEVER,
        "entry_log_bytes_max": 1,
        "compaction_bytes_per_s": 0.0,
        **changes,
    }
    return Host(CONFIG, **values)


async def test_a_ledger_whose_metadata_is_gone_goes_with_its_logs() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for ledger_id in (1, 2):
            register(host.coordination, ledger_id)
            await add(bookie, client, ledger_id, 0, 10)
        await add(bookie, client, 1, 10, 10)
        unregister(host.coordination, 1)
        await bookie.force_gc()
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER
        await require(client, 2, range(10))
        assert bookie.storage.counts == bookie.storage.index.counts()
        assert (bookie.storage.counts.ledgers, bookie.storage.counts.entries) == (1, 10)
        # Every write makes a log of its own here: entries, ledgers, entries, ledgers.
        assert file_name(1) not in host.ledger_disk.files
        assert file_name(3) in host.ledger_disk.files
        assert bookie.collector is not None
        collected = bookie.collector.collected
        assert collected.deleted_ledgers == 1
        assert collected.reclaimed_by_deletion_bytes > 1000


async def test_a_fence_outlives_its_ledger_as_long_as_its_writer_may_not_have_heard() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 10)
        await fence(client, 1)
        unregister(host.coordination, 1)
        await bookie.force_gc()
        # A writer that was cut off goes on where it was: without the fence it would be confirmed.
        assert await code_of(client, make_add(1, 10)) == ReturnCode.EFENCED
        await asyncio.sleep(CONFIG.garbage.gc_fences_kept_s)
        await bookie.force_gc()
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_so_does_one_that_the_index_could_not_make_durable_at_first() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await client.ask(*(make_add(1, number) for number in range(10)))
        host.store.on_flush = raise_no_space
        with pytest.raises(OSError, match="no space"):
            await bookie.checkpointer.run()
        host.store.on_flush = lambda: None
        await bookie.checkpointer.run()
        unregister(host.coordination, 1)
        await bookie.force_gc()
        assert bookie.storage.counts == bookie.storage.index.counts() == Counts()
        assert not any(usage.live_bytes for usage in bookie.storage.index.logs.values())


async def test_nor_does_a_count_that_was_too_small_keep_it() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 10)
        bookie.storage.counts = Counts(0, 5)
        unregister(host.coordination, 1)
        await bookie.force_gc()
        assert bookie.storage.counts == bookie.storage.index.counts() == Counts()


async def test_an_unforeseen_error_does_not_end_the_collection_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=10))
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 10)
        with monkeypatch.context() as patch:
            patch.setattr(module, "unlisted", None)
            await asyncio.sleep(15)
        assert bookie.background_faults == 1
        await asyncio.sleep(15)
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


def raise_no_space() -> None:
    raise OSError(errno.ENOSPC, "no space")


async def test_entries_of_a_deleted_ledger_leave_the_memory_too() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 3)
        assert bookie.collector is not None
        unregister(host.coordination, 1)
        await client.ask(*(make_add(1, 3 + number) for number in range(5)))
        await bookie.collector.force()
        assert bookie.storage.write_cache.used_bytes < 100 * 5  # rest is the frames' own bytes
        assert await code_of(client, encode_read(1, 4)) == ReturnCode.ENOLEDGER
        await client.ask(make_add(1, 0))
        await bookie.checkpointer.run()
        assert bookie.storage.counts == bookie.storage.index.counts()
        assert (bookie.storage.counts.ledgers, bookie.storage.counts.entries) == (1, 1)


@pytest.mark.parametrize("failures", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("error", [ConnectionLost("away"), CoordinationError("no")])
async def test_without_an_answer_nothing_is_deleted(failures: int, error: Exception) -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        register(host.coordination, 2)
        await add(bookie, client, 1, 0, 3)
        await add(bookie, client, 2, 0, 3)
        unregister(host.coordination, 2)
        asked = 0

        def fail(verb: str, path: str) -> None:
            nonlocal asked
            del verb, path
            asked += 1
            if asked >= failures:
                raise error

        host.coordination.before = fail
        if failures < 5:
            with pytest.raises(CoordinationError):
                await bookie.force_gc()
            await require(client, 2, range(3))
        host.coordination.before = None
        await require(client, 1, range(3))


async def test_a_list_that_lacks_a_ledger_is_not_enough() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 3)

        async def list_nothing(path: str, *, on_change: object = None) -> list[str]:
            del path, on_change
            return []

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(host.coordination, "children", list_nothing)
            await bookie.force_gc()
        await require(client, 1, range(3))


async def test_the_zookeeper_of_another_cluster_is_no_reason_to_delete() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 3)
        host.coordination.zookeeper.put(INSTANCE_ID_PATH, b"another")
        with pytest.raises(StrangeCluster, match=r"another.*instance-1.*no ledger is deleted"):
            await bookie.force_gc()
        host.coordination.zookeeper.remove(INSTANCE_ID_PATH)
        with pytest.raises(CoordinationError):
            await bookie.force_gc()
        await require(client, 1, range(3))


async def test_a_ledger_that_comes_while_zookeeper_is_asked_stays() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 3)
        children = host.coordination.children

        async def list_then_create(path: str, *, on_change: None = None) -> list[str]:
            names = await children(path, on_change=on_change)
            register(host.coordination, 2)
            await add(bookie, client, 2, 0, 3)
            return names

        register(host.coordination, 9)
        assert bookie.collector is not None
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(host.coordination, "children", list_then_create)
            await bookie.collector.force()
        await require(client, 2, range(3))
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_a_closed_ledger_with_its_copies_elsewhere_goes() -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    announce(host.coordination, "b", "c")
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for ledger_id, ensemble, state in [
            (1, ("b", "c"), LedgerState.CLOSED),
            (2, ("b", "c"), LedgerState.OPEN),
            (3, ("b", "bookie-1"), LedgerState.CLOSED),
        ]:
            register(host.coordination, ledger_id, ensemble=ensemble, state=state)
            await add(bookie, client, ledger_id, 0, 3)
        await bookie.force_gc()
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER
        await require(client, 2, range(3))
        await require(client, 3, range(3))
        assert host.coordination.zookeeper.tree.exists(lock_path(1)) is None
        assert host.coordination.zookeeper.tree.exists(ledger_path(1))


async def test_a_ledger_stays_while_a_bookie_of_its_metadata_is_not_there() -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    announce(host.coordination, "b")
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1, ensemble=("b", "c"), state=LedgerState.CLOSED)
        await add(bookie, client, 1, 0, 3)
        await bookie.force_gc()
        await require(client, 1, range(3))
        announce(host.coordination, "c", parent=READ_ONLY_PATH)
        await bookie.force_gc()
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_a_ledger_that_is_being_copied_is_left_alone() -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    announce(host.coordination, "b", "c")
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1, ensemble=("b", "c"), state=LedgerState.CLOSED)
        await add(bookie, client, 1, 0, 3)
        host.coordination.zookeeper.put(lock_path(1), b"")
        await bookie.force_gc()
        await require(client, 1, range(3))
        assert host.coordination.zookeeper.tree.exists(lock_path(1))


async def test_a_lock_whose_making_got_no_answer_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    announce(host.coordination, "b")
    create = host.coordination.create

    async def lose_answer(path: str, value: bytes, *, ephemeral: bool, make_parents: bool) -> str:
        await create(path, value, ephemeral=ephemeral, make_parents=make_parents)
        raise ConnectionLost(path)

    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1, ensemble=("b",), state=LedgerState.CLOSED)
        await add(bookie, client, 1, 0, 3)
        with monkeypatch.context() as patch:
            patch.setattr(host.coordination, "create", lose_answer)
            with pytest.raises(ConnectionLost):
                await bookie.force_gc()
        assert host.coordination.zookeeper.tree.exists(lock_path(1)) is None
        await require(client, 1, range(3))


@pytest.mark.parametrize("is_copied", [False, True])
async def test_a_collector_that_loses_the_lock_during_a_checkpoint_deletes_nothing(
    *, is_copied: bool
) -> None:
    """A worker takes the lock over, and may have copied the ledger to this bookie already."""
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    announce(host.coordination, "b")
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1, ensemble=("b",), state=LedgerState.CLOSED)
        await add(bookie, client, 1, 0, 3)
        assert bookie.collector is not None
        async with bookie.checkpointer.lock:
            running = asyncio.ensure_future(bookie.collector.force())
            await settle()
            assert host.coordination.zookeeper.tree.exists(lock_path(1))
            await end_session(host.coordination)
            if is_copied:
                register(host.coordination, 1, ensemble=("bookie-1",), state=LedgerState.CLOSED)
            else:
                host.coordination.zookeeper.put(lock_path(1), b"worker")
        await running
        await require(client, 1, range(3))
        assert (host.coordination.zookeeper.tree.exists(lock_path(1)) is None) is is_copied
        assert bookie.collector.collected.deleted_ledgers == 0


async def test_metadata_that_cannot_be_read_is_no_reason_to_delete() -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=0, gc_over_replicated_interval_s=10))
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        host.coordination.zookeeper.put(ledger_path(1), b"garbage")
        await add(bookie, client, 1, 0, 3)
        await bookie.force_gc()
        await require(client, 1, range(3))


async def test_many_ledgers_and_blocks_are_looked_at_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LEDGERS_PER_PORTION", 3)
    monkeypatch.setattr(module, "BLOCKS_PER_CHANGE", 2)
    host = make_host(block_bytes=1)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for ledger_id in range(7):
            if ledger_id % 2:
                register(host.coordination, ledger_id)
            await add(bookie, client, ledger_id, 0, 5)
        await bookie.force_gc()
        assert [record.ledger_id for record in bookie.storage.index.ledgers()] == [5, 3, 1]
        assert bookie.storage.counts == bookie.storage.index.counts()
        assert bookie.storage.counts.entries == 15
        for ledger_id in (1, 3, 5):
            await require(client, ledger_id, range(5))


async def test_it_happens_by_itself_and_goes_on_after_a_failure() -> None:
    host = make_host(garbage=GarbageConfig(gc_interval_s=100))
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 3)
        await asyncio.sleep(99)
        await require(client, 1, range(3))
        host.coordination.lose("", is_done=False)
        await asyncio.sleep(50)
        assert bookie.collector is not None
        assert bookie.collector.collected.failures == 1
        await require(client, 1, range(3))
        await asyncio.sleep(100)
        assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER


async def test_the_log_that_is_written_to_stays_even_if_all_in_it_is_garbage() -> None:
    host = make_host(entry_log_bytes_max=1 << 30)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 3)
        await bookie.force_gc()
        assert list(bookie.entry_log.numbers) == [1]
        register(host.coordination, 2)
        await add(bookie, client, 2, 0, 3)
        await require(client, 2, range(3))


async def test_fences_outlive_the_logs_that_tell_of_them_and_then_the_index() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 2)
        await fence(client, 2)
        await add(bookie, client, 1, 0, 3)
        for number in range(3):
            await add(bookie, client, 1, 3 + number, 1)
        told_in = bookie.entry_log.numbers
        await bookie.force_gc()
        assert not set(told_in) & set(bookie.entry_log.numbers[:-2])
    host.kill()
    host.store = type(host.store)()
    async with host.bookie():
        await require_fenced(host.network.connect_client(), 2)


@pytest.mark.parametrize("unsynced_bytes", [0, 1 << 40])
@pytest.mark.parametrize("with_index", [True, False])
async def test_dying_at_any_moment_loses_nothing_that_lives(
    *, unsynced_bytes: int, with_index: bool
) -> None:
    host = make_host(entry_log_bytes_max=3000, block_bytes=500, garbage=NEARLY_ALL)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        for ledger_id in (2, 4, 5):
            register(host.coordination, ledger_id)
        await fence(client, 5)
        for number in range(6):
            for ledger_id in (1, 2, 3, 4):
                await add(bookie, client, ledger_id, number * 5, 5)
        moments = Moments(host, unsynced_bytes)
        await bookie.force_gc()
        moments.end()
        assert bookie.storage.counts.ledgers == 3
        await require(client, 2, range(30))
    assert len(moments.wrecks) > 30
    for wreck in moments.wrecks:
        again = wreck.host(host, with_index=with_index)
        async with again.bookie() as survivor:
            client = again.network.connect_client()
            await require(client, 2, range(30))
            await require(client, 4, range(30))
            await require_fenced(client, 5)
            await survivor.force_gc()
            await require(client, 2, range(30))
            await require(client, 4, range(30))
            await require_fenced(client, 5)
            assert await code_of(client, encode_read(1, 0)) == ReturnCode.ENOLEDGER
            assert survivor.storage.counts == survivor.storage.index.counts()
            assert survivor.storage.counts.ledgers == 3
            await settle()


async def test_compactions_that_are_suspended_wait_for_the_opposite_order() -> None:
    limits = GarbageConfig(
        gc_interval_s=10, minor_compaction_interval_s=10, major_compaction_interval_s=10
    )
    host = make_host(garbage=limits)
    async with host.bookie() as bookie:
        assert bookie.collector is not None
        bookie.collector.suspended |= {CompactionKind.MINOR, CompactionKind.MAJOR}
        await asyncio.sleep(100)
        collected = bookie.collector.collected
        assert (collected.minor_compactions, collected.major_compactions) == (0, 0)
        bookie.collector.suspended.clear()
        await asyncio.sleep(100)
        assert collected.major_compactions


async def test_a_disk_that_does_not_say_how_full_it_is_costs_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: EntryLog) -> int:
        raise OSError(errno.EIO, "no answer")

    host = make_host()
    async with host.bookie() as bookie:
        assert bookie.collector is not None
        with monkeypatch.context() as patch:
            patch.setattr(EntryLog, "free_bytes", property(fail))
            bookie.collector.is_disk_full = True
            bookie.storage.refuse_adds("full")  # asks for a round, which says that the disk is full
            await settle()
            assert bookie.collector.collected.failures == 1
        assert bookie.background_faults == 0
