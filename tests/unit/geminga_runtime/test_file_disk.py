"""Real files: appended, synced, cut, replaced as a whole; failures leave what was there before."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.geminga_runtime.disk_conformance import DiskConformance

from geminga_runtime import file_disk as module
from geminga_runtime.disk import DiskFile
from geminga_runtime.file_disk import BUFFERS_PER_WRITE_MAX, FORGET_BYTES, FileDisk

pytestmark = pytest.mark.real_loop  # real files and threads

RESERVE_BYTES = 100_000


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[FileDisk]:
    disk = FileDisk(tmp_path / "data" / "journal")
    yield disk
    disk.close()


@pytest.fixture
async def file(disk: FileDisk) -> AsyncIterator[DiskFile]:
    file = await disk.open("entries")
    yield file
    await file.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    paths: list[str] = []

    def note(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return paths


class TestFileDisk(DiskConformance):
    """Real files keep to what every disk must do."""


async def test_more_buffers_than_one_write_takes_are_all_written(
    disk: FileDisk, file: DiskFile
) -> None:
    chunks = [b"%06d" % number for number in range(BUFFERS_PER_WRITE_MAX * 2 + 5)]
    await file.append(chunks)
    assert await disk.read_file("entries") == b"".join(chunks)


def failing(number: int) -> Callable[..., int]:
    def fail(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
async def test_what_the_page_cache_does_not_have_is_read_by_a_thread(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await file.append([b"abcdef"])
    readers: list[int] = []
    pread = os.pread

    def noting(descriptor: int, length: int, offset: int) -> bytes:
        readers.append(threading.get_ident())
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "preadv", failing(number))
    monkeypatch.setattr(os, "pread", noting)
    for _ in range(2):
        assert await file.read(1, 3) == b"bcd"
    assert readers
    assert threading.get_ident() not in readers


async def test_what_the_page_cache_has_only_in_part_is_read_by_a_thread(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await file.append([b"abcdef"])

    def partly(_descriptor: int, _buffers: list[bytearray], _offset: int, _flags: int) -> int:
        return 2

    monkeypatch.setattr(os, "preadv", partly)
    assert await file.read(0, 6) == b"abcdef"


async def test_a_read_error_is_raised(file: DiskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    await file.append([b"abc"])
    monkeypatch.setattr(os, "preadv", failing(errno.EIO))
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        await file.read(0, 3)


def write_two_bytes(descriptor: int, chunks: Sequence[bytes], offset: int) -> int:
    return os.pwrite(descriptor, chunks[0][:2], offset)


async def test_a_short_write_is_finished(
    disk: FileDisk, file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", write_two_bytes)
    assert await file.append([b"abc", b"def"]) == 0
    assert await file.append([b"ghijk"]) == 6
    assert file.size == 11
    assert await disk.read_file("entries") == b"abcdefghijk"


async def test_a_full_disk_leaves_the_file_as_it_was(
    disk: FileDisk, file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await file.append([b"kept"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", write_two_bytes)
        patch.setattr(os, "pwrite", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space left") as full:
            await file.append([b"lost", b"too"])
    assert full.value.errno == errno.ENOSPC
    assert file.size == 4
    assert await disk.read_file("entries") == b"kept"
    assert await file.append([b"!"]) == 4


async def test_a_write_that_cannot_be_undone_ends_the_file(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing(errno.ENOSPC))
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(OSError, match="No space left"):
            await file.append([b"lost"])
    with pytest.raises(OSError, match="No space left"):
        await file.append([b"more"])


async def test_a_failed_sync_ends_the_file_for_the_next_one_would_lie(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            await file.append_and_sync([b"unsure"])
    for attempt in (file.sync(), file.append([b"x"]), file.append_and_sync([b"x"])):
        with pytest.raises(OSError, match="Input/output") as failed:
            await attempt
        assert failed.value.errno == errno.EIO
    assert await file.read(0, 6) == b"unsure"


async def test_a_file_closed_while_a_thread_uses_it_is_given_back_afterwards(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await disk.open("slow")
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    goes_on = threading.Event()
    descriptors: list[int] = []

    def slow(descriptor: int) -> None:
        descriptors.append(descriptor)
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(10)
        os.fstat(descriptor)  # raises EBADF if it was given back already

    monkeypatch.setattr(os, "fdatasync", slow)
    task = asyncio.ensure_future(file.sync())
    await begun.wait()
    await file.close()
    os.fstat(descriptors[0])
    goes_on.set()
    await task
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
    for attempt in (file.sync(), file.read(0, 1), file.append([b"x"])):
        with pytest.raises(ValueError, match="closed"):
            await attempt
    await file.close()


def stored_bytes(tmp_path: Path, name: str) -> int:
    return (tmp_path / "data" / "journal" / name).stat().st_size


async def test_reserved_space_is_no_part_of_the_file_until_it_is_opened_again(
    disk: FileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await disk.open("reserving", reserve_bytes=RESERVE_BYTES)
    await file.append([b"abc"])
    assert stored_bytes(tmp_path, "reserving") == 3, "only what is synced needs it"
    assert await file.append_and_sync([b"def"]) == 3
    assert stored_bytes(tmp_path, "reserving") == 6 + RESERVE_BYTES
    assert file.size == 6
    assert await file.read(2, 100) == b"cdef"
    monkeypatch.setattr(os, "preadv", failing(errno.EAGAIN))
    assert await file.read(2, 100) == b"cdef"
    assert await file.read(6, 1) == await file.read(100, 1) == b""
    assert await file.append_and_sync([b"gh"]) == 6
    await file.close()
    again = await disk.open("reserving")
    assert again.size == 6 + RESERVE_BYTES
    assert await again.read(0, again.size) == b"abcdefgh" + bytes(RESERVE_BYTES - 2)
    await again.truncate(8)
    assert stored_bytes(tmp_path, "reserving") == 8
    await again.close()


async def test_space_is_reserved_again_when_it_is_used_up_or_was_given_back(
    disk: FileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[tuple[int, int]] = []
    reserve = os.posix_fallocate

    def noting(descriptor: int, offset: int, length: int) -> None:
        reserved.append((offset, length))
        reserve(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", noting)
    file = await disk.open("reserving", reserve_bytes=1000)
    for _ in range(50):
        await file.append_and_sync([bytes(100)])
    assert reserved == [(offset, 1000) for offset in range(100, 5000, 1100)]
    await file.truncate(10)
    assert stored_bytes(tmp_path, "reserving") == 10
    await file.append_and_sync([b"x"])
    assert reserved[-1] == (11, 1000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            await file.append([b"lost"])
    assert stored_bytes(tmp_path, "reserving") == 11
    await file.append_and_sync([b"y"])
    assert reserved[-1] == (12, 1000)
    assert await file.read(10, 5) == b"xy"
    await file.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP])
async def test_where_nothing_can_be_reserved_appends_go_on_without(
    disk: FileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(number))
    file = await disk.open("reserving", reserve_bytes=1000)
    for offset in range(3):
        assert await file.append_and_sync([b"x"]) == offset
    assert stored_bytes(tmp_path, "reserving") == 3
    await file.close()
    monkeypatch.delattr(os, "posix_fallocate")
    file = await disk.open("reserving", reserve_bytes=1000)
    assert await file.append_and_sync([b"x"]) == 3
    assert stored_bytes(tmp_path, "reserving") == 4
    await file.close()


@pytest.mark.parametrize("is_synced", [True, False])
async def test_a_file_that_is_not_reread_leaves_the_page_cache_in_steps_once_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_synced: bool
) -> None:
    advised: list[tuple[int, int, int]] = []

    def note(_descriptor: int, offset: int, length: int, advice: int) -> None:
        advised.append((offset, length, advice))
        raise OSError(errno.EINVAL, "advice is not taken here")

    monkeypatch.setattr(os, "posix_fadvise", note)
    disk = FileDisk(tmp_path / "forgetful", is_synced=is_synced)
    for name, is_reread in (("reread", True), ("journal", False)):
        file = await disk.open(name, is_reread=is_reread)
        for offset in range(0, 5 * FORGET_BYTES // 2, FORGET_BYTES // 2):
            assert await file.append_and_sync([bytes(FORGET_BYTES // 2)]) == offset
        await file.close()
    disk.close()
    steps = [FORGET_BYTES, 2 * FORGET_BYTES] if is_synced else []
    assert advised == [(0, size, os.POSIX_FADV_DONTNEED) for size in steps]


async def test_a_replacement_that_fails_leaves_the_old_content(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await disk.write_file("cookie", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            await disk.write_file("cookie", b"new")
    assert await disk.read_file("cookie") == b"old"
    assert await disk.list("") == ["cookie"], "the unfinished file is not listed"
    await disk.write_file("cookie", b"newer")
    assert await disk.read_file("cookie") == b"newer"


async def test_every_new_name_is_made_durable(disk: FileDisk, synced: list[str]) -> None:
    await disk.make_directory("a/b")
    assert synced == ["journal", "a"]
    file = await disk.open("a/b/new")
    assert synced[2:] == ["b"]
    await file.append_and_sync([b"x"])
    assert synced[3:] == ["new"]
    await file.close()
    await (await disk.open("a/b/new")).close()
    assert len(synced) == 4, "a name that stood there already is not synced again"
    await disk.write_file("a/cookie", b"x")
    assert synced[4:] == ["cookie.unfinished", "a"]
    await disk.remove("a/cookie")
    assert synced[6:] == ["a"]


async def test_without_syncing_nothing_is_synced(tmp_path: Path, synced: list[str]) -> None:
    disk = FileDisk(tmp_path / "data", is_synced=False)
    await disk.make_directory("a")
    file = await disk.open("a/new")
    await file.append_and_sync([b"x"])
    await file.sync()
    await file.truncate(0)
    await file.close()
    await disk.write_file("a/cookie", b"x")
    disk.close()
    assert synced == []


async def test_the_free_space_is_that_of_the_file_system(disk: FileDisk, tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    total = status.f_blocks * status.f_frsize
    assert 0 < disk.free_bytes() <= total


def test_the_names_of_unfinished_files_cannot_be_mistaken() -> None:
    assert module.UNFINISHED_SUFFIX.startswith(".")
