"""New files go to the emptiest directory that takes any."""

from __future__ import annotations

from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories


def make(*free: int) -> Directories:
    disks = [MemoryDisk() for _ in free]
    for disk, free_bytes in zip(disks, free, strict=True):
        disk.free = free_bytes
    return Directories((f"/d{number}", disk) for number, disk in enumerate(disks))


def test_the_emptiest_one_is_taken() -> None:
    assert make(1, 3, 2).for_new_file().path == "/d1"


def test_of_equal_ones_the_first_is_taken() -> None:
    assert make(2, 2).for_new_file().path == "/d0"


def test_full_and_failed_ones_come_last() -> None:
    directories = make(9, 8, 1)
    one, two, _ = directories
    one.is_full = True
    two.has_failed = True
    assert directories.for_new_file().path == "/d2"
    assert directories.writable_count == 1


def test_where_none_is_preferred_the_emptiest_is_taken_all_the_same() -> None:
    directories = make(1, 2)
    for directory in directories:
        directory.is_full = True
    assert directories.for_new_file().path == "/d1"
    assert directories.writable_count == 0


def test_the_usage_is_what_the_disk_said_last() -> None:
    directories = make(1 << 39)
    (directory,) = directories
    directory.measure()
    assert directory.usage == 0.75
    assert directories.paths == ("/d0",)
