"""The simulated disk: what is synced stays, what is not may not; errors come as asked for."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.geminga_runtime.disk_conformance import DiskConformance

from geminga_runtime.disk import Disk
from geminga_simulation.conditions import DiskConditions
from geminga_simulation.disk import SimulatedDisk
from geminga_simulation.errors import SimulationError
from geminga_simulation.event_loop.loop import running_loop
from geminga_simulation.simulate import simulate


def make_disk(
    conditions: DiskConditions | None = None, *, capacity_bytes: int = 1 << 40
) -> SimulatedDisk:
    loop = running_loop()
    return SimulatedDisk(loop, "disk", conditions, capacity_bytes=capacity_bytes)


class TestSimulatedDisk(DiskConformance):
    """The simulated one keeps to what every disk must do."""

    @pytest.fixture
    async def disk(self) -> Disk:
        return make_disk().mount()


async def test_files_and_directories_are_listed_made_replaced_and_removed() -> None:
    device = make_disk()
    disk = device.mount()
    assert await disk.read_file("none") is None
    assert await disk.list("none") == []
    await disk.make_directory("ledgers/current")
    await disk.write_file("ledgers/b", b"1")
    await disk.write_file("ledgers/b", b"22")
    await disk.write_file("ledgers/current/a", b"333")
    await disk.write_file("top", b"")
    assert await disk.list("ledgers") == ["b", "current"]
    assert await disk.list("ledgers/current/") == ["a"]
    assert await disk.list("") == ["ledgers", "top"]
    assert device.used_bytes == 5
    await disk.remove("ledgers/b")
    await disk.remove("ledgers/b")
    assert await disk.list("ledgers") == ["current"]
    assert device.used_bytes == 3
    with pytest.raises(FileNotFoundError):
        await disk.open("missing/file")
    with pytest.raises(FileNotFoundError):
        await disk.write_file("missing/file", b"")


def test_a_crash_keeps_what_was_synced_and_tears_the_rest_by_chance() -> None:
    async def main() -> bytes:
        device = make_disk()
        file = await device.mount().open("journal")
        await file.append_and_sync([b"S" * 1000])
        await file.append([b"U" * 2000])
        device.crash()
        content = await device.mount().read_file("journal")
        assert content is not None
        return content

    contents = [simulate(seed, main).result for seed in range(200)]
    assert all(content.startswith(b"S" * 1000) for content in contents)
    tails = [content[1000:] for content in contents]
    assert any(not tail for tail in tails)
    assert any(tail == b"U" * 2000 for tail in tails)
    assert any(tail and tail == b"U" * len(tail) and len(tail) < 2000 for tail in tails)
    assert any(b"\0" in tail and tail.endswith(b"U") for tail in tails), "a hole"
    assert any(tail.strip(b"U\0") for tail in tails), "garbage"


async def test_a_sync_covers_only_what_was_appended_before_it_began() -> None:
    device = make_disk(DiskConditions(access_s_max=0.001, sync_s_min=1, sync_s_max=1))
    file = await device.mount().open("journal")
    await file.append([b"early"])
    syncing = asyncio.ensure_future(file.sync())
    await asyncio.sleep(0)
    await file.append([b"late"])
    await syncing
    assert device.files["journal"].synced_size == len(b"early")


async def test_a_killed_process_loses_its_view_but_no_byte() -> None:
    device = make_disk()
    disk = device.mount()
    file = await disk.open("journal")
    await file.append([b"unsynced"])
    device.unmount()
    for work in (file.append([b"ghost"]), file.sync(), disk.write_file("ghost", b"")):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work, 60)
    fresh = device.mount()
    assert await fresh.read_file("journal") == b"unsynced"
    assert await fresh.list("") == ["journal"]


async def test_a_killed_process_leaves_zeros_where_it_had_reserved_space() -> None:
    device = make_disk()
    disk = device.mount()
    file = await disk.open("journal", reserve_bytes=1000)
    await file.append([b"header"])
    device.unmount()
    assert await device.mount().read_file("journal") == b"header", "nothing was synced yet"
    file = await device.mount().open("journal", reserve_bytes=1000)
    await file.append_and_sync([b"-group"])
    assert file.size == 12
    device.unmount()
    file = await device.mount().open("journal")
    content = await file.read(0, file.size)
    assert content.rstrip(b"\0") == b"header-group"
    assert len(content) > 12
    assert device.used_bytes == len(content)
    await file.truncate(12)
    device.unmount()
    assert await device.mount().read_file("journal") == b"header-group"


def test_power_may_be_lost_before_reserved_space_is_durable() -> None:
    async def main() -> bytes | None:
        device = make_disk()
        file = await device.mount().open("journal", reserve_bytes=1000)
        await file.append_and_sync([b"group"])
        device.crash()
        again = await device.mount().read_file("journal")
        device.crash()
        assert await device.mount().read_file("journal") == again
        return again

    found = [simulate(seed, main).result for seed in range(20)]
    assert all(content is not None and content.rstrip(b"\0") == b"group" for content in found)
    assert {content == b"group" for content in found} == {True, False}


@pytest.mark.parametrize("moment", range(8))
def test_replacing_a_file_leaves_the_old_or_the_new(moment: int) -> None:
    async def main() -> bytes | None:
        device = make_disk(DiskConditions(sync_s_min=1, sync_s_max=1))
        await device.mount().write_file("cookie", b"old")
        replacing = asyncio.ensure_future(device.mount().write_file("cookie", b"new"))
        await asyncio.sleep(0.2 + moment / 4)
        device.crash()
        replacing.cancel()
        return await device.mount().read_file("cookie")

    outcomes = [simulate(seed, main).result for seed in range(10)]
    assert set(outcomes) == {b"old" if moment < 4 else b"new"}


async def test_what_fails_changes_nothing() -> None:
    device = make_disk()
    file = await device.mount().open("journal")
    device.conditions = DiskConditions(write_error_probability=1, read_error_probability=1)
    with pytest.raises(OSError, match="journal") as caught:
        await file.append([b"x"])
    assert caught.value.errno == errno.EIO
    assert file.size == 0
    with pytest.raises(OSError, match="journal"):
        await file.read(0, 1)
    device.conditions = DiskConditions()
    assert await file.append([b"x"]) == 0
    assert await file.read(0, 1) == b"x"


async def test_after_a_failed_sync_a_file_takes_no_more_and_its_bytes_are_doomed() -> None:
    device = make_disk(DiskConditions(torn_probability=0))
    file = await device.mount().open("journal")
    await file.append([b"doomed"])
    good = device.conditions
    device.conditions = replace(good, sync_error_probability=1)
    with pytest.raises(OSError, match="journal"):
        await file.sync()
    device.conditions = good
    for work in (file.sync, lambda: file.append([b"more"])):
        with pytest.raises(OSError, match="journal"):
            await work()
    again = await device.mount().open("journal")
    assert await again.read(0, 6) == b"doomed"
    await again.append_and_sync([b"-safe"])
    device.crash()
    content = await device.mount().read_file("journal")
    assert content is not None
    assert content[6:] == b"-safe"
    assert content[:6] != b"doomed"


async def test_a_full_disk_says_so_and_changes_nothing() -> None:
    device = make_disk(capacity_bytes=10)
    disk = device.mount()
    file = await disk.open("journal")
    await file.append([b"12345678"])
    assert disk.free_bytes() == 2
    for work in (file.append([b"abc"]), disk.write_file("other", b"abc")):
        with pytest.raises(OSError, match="space") as caught:
            await work
        assert caught.value.errno == errno.ENOSPC
    assert await file.append([b"ab"]) == 8
    assert disk.free_bytes() == 0
    await file.truncate(0)
    assert disk.free_bytes() == 10


async def test_random_errors_come_as_often_as_told() -> None:
    device = make_disk(DiskConditions(write_error_probability=0.3, full_probability=0.2))
    file = await device.mount().open("journal")
    errors = [await error_of(file.append([b"x"])) for _ in range(400)]
    assert 80 < errors.count(errno.EIO) < 140
    assert 50 < errors.count(errno.ENOSPC) < 110
    assert file.size == errors.count(0)


async def error_of(work: Coroutine[Any, Any, object]) -> int:
    try:
        await work
    except OSError as error:
        return error.errno or -1
    return 0


async def test_a_flipped_bit_is_one_bit() -> None:
    device = make_disk()
    file = await device.mount().open("journal")
    with pytest.raises(SimulationError, match="no bit"):
        device.flip_bit("journal")
    await file.append([bytes(100)])
    offset = device.flip_bit("journal")
    content = await file.read(0, 100)
    assert content[offset].bit_count() == 1
    assert sum(content) == content[offset]
    assert device.flip_bit("journal", 3) == 3


async def test_a_slow_disk_takes_its_time() -> None:
    device = make_disk(DiskConditions(slow_probability=1, slow_s_max=10))
    file = await device.mount().open("journal")
    started_s = asyncio.get_running_loop().time()
    await file.append_and_sync([b"x"])
    assert asyncio.get_running_loop().time() - started_s > 0.5


def test_cancelling_an_append_may_come_too_late() -> None:
    async def main() -> int:
        file = await make_disk().mount().open("journal")
        appending = asyncio.ensure_future(file.append([b"x"]))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.sleep(1)
        return file.size

    assert {simulate(seed, main).result for seed in range(20)} == {0, 1}


def test_a_lying_disk_loses_what_was_synced() -> None:
    async def main() -> bytes | None:
        loop = running_loop()
        device = SimulatedDisk(loop, "liar")
        device.is_lying = True
        file = await device.mount().open("journal")
        await file.append_and_sync([b"S" * 1000])
        device.crash()
        return await device.mount().read_file("journal")

    assert any(simulate(seed, main).result != b"S" * 1000 for seed in range(10))


async def test_what_is_cut_off_or_lost_makes_room() -> None:
    device = make_disk(capacity_bytes=1000)
    disk = device.mount()
    await disk.write_file("cut", bytes(600))
    await disk.write_file("lost", bytes(400))
    device.cut("cut", 100)
    device.lose("lost")
    assert await disk.read_file("cut") == bytes(100)
    assert await disk.read_file("lost") is None
    assert device.used_bytes == 100
    await disk.write_file("new", bytes(900))
    device.clear()
    assert (device.used_bytes, device.files) == (0, {})
    assert await disk.read_file("new") is None
