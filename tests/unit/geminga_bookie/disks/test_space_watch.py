"""A bookie whose ledger disks fill up says so, goes on reading, and comes back by itself."""

from __future__ import annotations

import asyncio
import errno

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.geminga_bookie.fakes import KEY, make_add
from tests.unit.geminga_bookie.garbage_rig import PAYLOAD, add, code_of, register, require, settle
from tests.unit.geminga_bookie.host import CONFIG, Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.bookie import Bookie
from geminga_bookie.config import SpaceConfig
from geminga_bookie.decisions.disk_space import SpaceVerdict
from geminga_bookie.disks.directories import Directories
from geminga_bookie.disks.space_watch import SpaceWatch
from geminga_bookie.metrics import BookieMetrics
from geminga_protocol.bookkeeper.v2 import Flag, ReturnCode, encode_read
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH

SPACE = SpaceConfig(
    disk_usage_threshold=0.9, disk_usage_warn_threshold=0.8, disk_usage_lwm_threshold=0.7
)
RECOVERY = int(Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY)


def make_host() -> Host:
    return Host(CONFIG, space=SPACE)


def use(disk: MemoryDisk, share: float) -> None:
    disk.free = round(disk.total_bytes() * (1 - share))


async def next_look() -> None:
    await asyncio.sleep(SPACE.disk_check_interval_s + 1)
    await settle()


def status(bookie: Bookie) -> float | None:
    registry = CollectorRegistry()
    registry.register(BookieMetrics(bookie))
    return registry.get_sample_value("bookie_SERVER_STATUS")


async def test_a_full_disk_makes_it_read_only_and_room_makes_it_writable() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 1)
        await add(bookie, client, 1, 0, 10)
        use(host.ledger_disk, 0.95)
        await next_look()
        assert await code_of(client, make_add(1, 10)) == ReturnCode.EREADONLY
        assert host.coordination.zookeeper.tree.exists(f"{READ_ONLY_PATH}/bookie-1")
        assert host.coordination.zookeeper.tree.exists(f"{AVAILABLE_PATH}/bookie-1") is None
        assert status(bookie) == 0
        await require(client, 1, range(10))
        assert await code_of(client, make_add(2, 0, flags=RECOVERY)) == 0
        use(host.ledger_disk, 0.75)
        await next_look()
        assert await code_of(client, make_add(1, 10)) == ReturnCode.EREADONLY
        use(host.ledger_disk, 0.65)
        await next_look()
        assert await code_of(client, make_add(1, 10, PAYLOAD)) == 0
        assert host.coordination.zookeeper.tree.exists(f"{READ_ONLY_PATH}/bookie-1") is None
        assert host.coordination.zookeeper.tree.exists(f"{AVAILABLE_PATH}/bookie-1")
        assert status(bookie) == 1


async def test_without_room_for_an_entry_log_not_even_recovery_is_served() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        use(host.ledger_disk, 0.95)
        await next_look()
        assert await code_of(client, make_add(2, 0, flags=RECOVERY)) == 0
        host.ledger_disk.free = SPACE.recovery_free_bytes_min - 1
        await next_look()
        assert await code_of(client, make_add(2, 1, flags=RECOVERY)) == ReturnCode.EREADONLY
        assert bookie.storage.is_read_only


async def test_a_recovery_add_without_priority_is_refused() -> None:
    host = make_host()
    use(host.ledger_disk, 0.95)
    async with host.bookie():
        client = host.network.connect_client()
        flags = int(Flag.RECOVERY_ADD)
        assert await code_of(client, make_add(2, 0, flags=flags)) == ReturnCode.EREADONLY


async def test_it_starts_on_a_full_disk_and_fences() -> None:
    host = make_host()
    use(host.ledger_disk, 0.95)
    async with host.bookie():
        assert host.coordination.zookeeper.tree.exists(f"{READ_ONLY_PATH}/bookie-1")
        client = host.network.connect_client()
        fencing = encode_read(1, 0, int(Flag.FENCING), KEY)
        assert await code_of(client, fencing) == ReturnCode.ENOENTRY


async def test_what_was_deleted_makes_room_as_soon_as_it_is_needed() -> None:
    host = make_host()
    host.config = CONFIG.__class__(bookie_id="bookie-1", space=SPACE, entry_log_bytes_max=1)
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        register(host.coordination, 2)
        await add(bookie, client, 1, 0, 10)
        await add(bookie, client, 2, 0, 10)
        files = len(host.ledger_disk.files)
        use(host.ledger_disk, 0.95)
        await next_look()
        assert len(host.ledger_disk.files) < files
        await require(client, 2, range(10))


async def test_a_full_disk_puts_compaction_off() -> None:
    host = make_host()
    async with host.bookie() as bookie:
        assert bookie.collector is not None
        assert (bookie.collector.may_minor, bookie.collector.may_major) == (True, True)
        use(host.ledger_disk, 0.85)
        await next_look()
        assert (bookie.collector.may_minor, bookie.collector.may_major) == (True, False)
        use(host.ledger_disk, 0.95)
        await next_look()
        assert (bookie.collector.may_minor, bookie.collector.may_major) == (False, False)


async def test_a_disk_that_does_not_answer_counts_as_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    verdicts: list[SpaceVerdict] = []
    watch = SpaceWatch(SPACE, Directories([("/l", disk)]), on_verdict=verdicts.append)

    def fail() -> int:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(disk, "free_bytes", fail)
    async with watch:
        assert [verdict.takes_adds for verdict in verdicts] == [False]


async def test_each_change_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    watch = SpaceWatch(SPACE, Directories([("/l", disk)]), on_verdict=lambda _: None)
    async with watch:
        use(disk, 0.95)
        await asyncio.sleep(SPACE.disk_check_interval_s * 5)
        use(disk, 0.5)
        await asyncio.sleep(SPACE.disk_check_interval_s * 5)
    assert [record.message for record in caplog.records] == [
        "ledger disk is full",
        "ledger disk has room again",
    ]
