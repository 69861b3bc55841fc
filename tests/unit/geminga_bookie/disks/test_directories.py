"""New files go to the emptiest directory; a set on which a second start fails is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories, require_usable
from geminga_bookie.errors import DirectoriesClash
from geminga_server.errors import DirectoryUnusable


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
    directory.capacity_bytes = directory.disk.total_bytes()
    directory.free_bytes = directory.disk.free_bytes()
    assert directory.usage == 0.75
    assert directories.paths == ("/d0",)


def require(root: Path, journals: list[Path], ledgers: list[Path] | None = None) -> None:
    """Check them, and that nothing was written."""
    before = sorted(root.rglob("*"))
    try:
        require_usable(journals, ledgers or [root / "ledgers"], root / "index")
    finally:
        assert sorted(root.rglob("*")) == before


def linked(root: Path) -> Path:
    (root / "link").symlink_to(root / "one", target_is_directory=True)
    return root / "link"


def below_a_link(root: Path) -> Path:
    (root / "all").symlink_to(root, target_is_directory=True)
    return root / "all" / "one"


SAME: list[Callable[[Path], Path]] = [
    lambda root: root / "one",
    lambda root: root / "two" / ".." / "one",
    lambda root: Path(os.path.relpath(root / "one")),
    linked,
    below_a_link,
]


@pytest.mark.parametrize("again", SAME)
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("kind", ["journal", "ledger"])
def test_a_directory_named_twice_is_refused_however_it_is_written(
    tmp_path: Path, kind: str, again: Callable[[Path], Path], *, exists: bool
) -> None:
    if exists:
        (tmp_path / "one").mkdir()
    same = [tmp_path / "one", again(tmp_path)]
    other = [tmp_path / "other"]
    with pytest.raises(DirectoriesClash, match=f"{kind} directory .*one is the same as"):
        require(tmp_path, *((same, other) if kind == "journal" else (other, same)))


def test_different_directories_are_taken_also_within_each_other(tmp_path: Path) -> None:
    require(tmp_path, [tmp_path / "j1", tmp_path / "j2"], [tmp_path / "l1", tmp_path / "l1/l2"])
    require(tmp_path, [tmp_path], [tmp_path / "ledgers"])


def test_one_directory_may_hold_a_journal_and_entry_logs(tmp_path: Path) -> None:
    require(tmp_path, [tmp_path / "one"], [tmp_path / "one"])


@pytest.mark.parametrize("name", ["index", "index/ledgers"])
def test_a_directory_in_that_of_the_index_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DirectoriesClash, match=f"ledger directory .*{name} lies in .*index"):
        require(tmp_path, [tmp_path / "journal"], [tmp_path / name])


@pytest.mark.parametrize("name", ["file", "file/below", "link"])
def test_a_file_where_a_directory_is_wanted_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(DirectoryUnusable, match=f"{name}.* cannot be used: .*file is no directory"):
        require(tmp_path, [tmp_path / name])


def test_a_directory_that_may_not_be_written_to_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may_not(_path: Path, _mode: int) -> bool:
        return False

    monkeypatch.setattr(os, "access", may_not)  # root may always
    with pytest.raises(DirectoryUnusable, match=f"this user may not write to {tmp_path}"):
        require(tmp_path, [tmp_path / "journal"])


def test_a_link_to_itself_is_said(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DirectoryUnusable, match="loop cannot be used"):
        require(tmp_path, [tmp_path / "loop"])


def test_the_directory_of_the_index_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("")
    with pytest.raises(DirectoryUnusable, match="index is no directory"):
        require(tmp_path, [tmp_path / "journal"])
