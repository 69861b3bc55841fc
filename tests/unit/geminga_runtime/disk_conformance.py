"""What every ``Disk`` must do while nothing fails: real files, and the simulated disk.

Derive a test class and give it a fixture ``disk``: an empty disk. What a crash leaves, and what is
left when something failed, each kind has tests of its own for.
"""

from __future__ import annotations

import asyncio

import pytest

from geminga_runtime.disk import Disk, DiskFile

# More than is read, or handed over, at once.
LONG_BYTES = 300_000


class DiskConformance:
    """See the module's text."""

    @pytest.fixture
    async def file(self, disk: Disk) -> DiskFile:
        return await disk.open("entries")

    async def test_appends_return_where_they_begin(self, file: DiskFile) -> None:
        assert await file.append([b"abc", bytearray(b"de"), memoryview(b"f")]) == 0
        assert await file.append_and_sync([b"gh"]) == 6
        assert await file.append([]) == 8
        assert file.size == 8
        assert await file.read(0, 100) == b"abcdefgh"
        assert await file.read(2, 3) == b"cde"
        assert await file.read(8, 5) == b""
        assert await file.read(100, 5) == b""
        assert await file.read(3, 0) == b""

    async def test_what_is_handed_over_may_change_afterwards(self, file: DiskFile) -> None:
        buffer = bytearray(b"before")
        await file.append([buffer])
        buffer[:] = b"behind"
        assert await file.read(0, 6) == b"before"

    async def test_appends_at_the_same_time_do_not_mix(self, file: DiskFile) -> None:
        groups = [[bytes([65 + number]) * 97] * 50 for number in range(20)]
        offsets = await asyncio.gather(*map(file.append, groups))
        assert sorted(offsets) == [97 * 50 * number for number in range(20)]
        for offset, group in zip(offsets, groups, strict=True):
            assert await file.read(offset, 97 * 50) == b"".join(group)

    async def test_long_reads_are_whole(self, disk: Disk, file: DiskFile) -> None:
        content = bytes(range(256)) * (LONG_BYTES // 256)
        await file.append([content])
        assert await file.read(0, len(content)) == content
        assert await disk.read_file("entries") == content

    async def test_a_file_opened_again_goes_on_at_its_end(self, disk: Disk, file: DiskFile) -> None:
        await file.append([b"abc"])
        again = await disk.open("entries")
        assert again.size == 3
        assert await again.append([b"d"]) == 3
        await again.close()
        assert await disk.read_file("entries") == b"abcd"

    async def test_a_cut_file_goes_on_where_it_was_cut(self, disk: Disk, file: DiskFile) -> None:
        await file.append([b"abcdef"])
        await file.truncate(2)
        assert file.size == 2
        assert await file.read(0, 10) == b"ab"
        assert await file.append([b"X"]) == 2
        assert await disk.read_file("entries") == b"abX"

    async def test_reserved_space_is_not_seen_while_the_file_is_open(self, disk: Disk) -> None:
        file = await disk.open("journal", reserve_bytes=LONG_BYTES)
        assert await file.append_and_sync([b"abc"]) == 0
        assert file.size == 3
        assert await file.read(0, 10) == b"abc"
        assert await file.append_and_sync([b"d"]) == 3
        await file.truncate(file.size)
        await file.close()
        assert await disk.read_file("journal") == b"abcd"

    async def test_a_closed_file_takes_nothing(self, file: DiskFile) -> None:
        await file.close()
        await file.close()
        with pytest.raises(ValueError, match="closed"):
            await file.append([b"x"])

    async def test_a_whole_file_is_replaced(self, disk: Disk) -> None:
        assert await disk.read_file("cookie") is None
        await disk.write_file("cookie", b"first")
        await disk.write_file("cookie", b"two")
        assert await disk.read_file("cookie") == b"two"
        assert await disk.list("") == ["cookie"]

    async def test_replacements_at_the_same_time_leave_one_of_them(self, disk: Disk) -> None:
        contents = [bytes([number]) * 5_000 for number in range(8)]
        await asyncio.gather(*(disk.write_file("cookie", content) for content in contents))
        assert await disk.read_file("cookie") in contents

    async def test_a_file_that_was_replaced_or_removed_stays_with_who_has_it_open(
        self, disk: Disk, file: DiskFile
    ) -> None:
        await file.append([b"old"])
        await disk.write_file("entries", b"new one")
        assert await file.read(0, 10) == b"old"
        await disk.remove("entries")
        assert await disk.read_file("entries") is None
        assert await file.append([b"er"]) == 3
        assert await file.read(0, 10) == b"older"
        assert await disk.list("") == []

    async def test_directories_are_made_listed_and_emptied(self, disk: Disk) -> None:
        assert await disk.list("a/b") == []
        await disk.make_directory("a/b")
        await disk.make_directory("a/b")
        for name in ("2", "10", "1"):
            await disk.write_file(f"a/b/{name}", b"")
        assert await disk.list("a/b") == ["1", "10", "2"]
        assert await disk.list("a/b/") == ["1", "10", "2"]
        assert await disk.list("a") == ["b"]
        await disk.remove("a/b/10")
        await disk.remove("a/b/10")
        await disk.remove("nowhere/at/all")
        assert await disk.list("a/b") == ["1", "2"]

    async def test_a_file_needs_its_directory(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            await disk.open("missing/file")
        with pytest.raises(FileNotFoundError):
            await disk.write_file("missing/file", b"")
        assert await disk.read_file("missing/file") is None

    async def test_the_free_space_is_part_of_the_whole(self, disk: Disk) -> None:
        assert 0 < disk.free_bytes() <= disk.total_bytes()
