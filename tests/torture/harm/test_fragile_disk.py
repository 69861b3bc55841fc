"""Proves that a power cut takes what was not synced, and nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.torture.harm.fragile_disk import FragileDisk, Notes, cut_power
from tests.torture.harm.fragile_index import FragileStore

SAFE, LOST = b"safe", b"written and not synced"
# Every cut leaves a part of what it may take: some of these take all of it, none less than a part.
SEEDS = range(20)


def begin_again(root: Path, seed: int) -> FragileDisk:
    """The disk of the next process, after a power cut."""
    cut_power(root, seed)
    return FragileDisk(root)


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_synced_stays_and_of_the_rest_at_most_the_beginning(
    tmp_path: Path, seed: int
) -> None:
    disk = FragileDisk(tmp_path / "disk")
    file = await disk.open("file", reserve_bytes=4096)
    await file.append_and_sync([SAFE[:2], SAFE[2:]])
    await file.append([LOST])
    await file.close()
    disk.close()
    disk = begin_again(tmp_path / "disk", seed)
    content = await disk.read_file("file")
    disk.close()
    assert content is not None
    assert content.startswith(SAFE)
    assert (SAFE + LOST).startswith(content)
    assert Notes(tmp_path / "disk").lost_bytes == len(SAFE + LOST) - len(content)


async def test_some_cuts_take_all_that_was_not_synced_and_some_a_part(tmp_path: Path) -> None:
    kept: set[int] = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        disk = FragileDisk(root)
        file = await disk.open("file")
        await file.append([LOST])
        await file.close()
        disk.close()
        begin_again(root, seed).close()
        kept.add((root / "file").stat().st_size)
    assert min(kept) == 0
    assert len(kept) > 2


async def test_a_process_that_is_only_killed_loses_nothing_but_makes_nothing_safe(
    tmp_path: Path,
) -> None:
    disk = FragileDisk(tmp_path / "disk")
    file = await disk.open("file")
    await file.append([LOST])
    await file.close()
    disk.close()
    disk = FragileDisk(tmp_path / "disk")
    assert await disk.read_file("file") == LOST
    await (await disk.open("file")).close()
    disk.close()
    nothing_stays = next(seed for seed in SEEDS if Random(seed).random() < 0.5)
    disk = begin_again(tmp_path / "disk", nothing_stays)
    assert await disk.read_file("file") == b""
    disk.close()


async def test_a_later_sync_makes_safe_what_a_killed_process_left(tmp_path: Path) -> None:
    disk = FragileDisk(tmp_path / "disk")
    file = await disk.open("file")
    await file.append([SAFE])
    await file.close()
    file = await disk.open("file")
    await file.sync()
    await file.close()
    disk.close()
    disk = begin_again(tmp_path / "disk", 0)
    assert await disk.read_file("file") == SAFE
    disk.close()


async def test_a_disk_that_never_syncs_loses_everything(tmp_path: Path) -> None:
    disk = FragileDisk(tmp_path / "disk", is_synced=False)
    file = await disk.open("file")
    await file.append_and_sync([LOST])
    await file.sync()
    await file.close()
    disk.close()
    begin_again(tmp_path / "disk", 0).close()
    assert (tmp_path / "disk" / "file").stat().st_size < len(LOST)


async def test_replacements_and_removals_that_returned_stay(tmp_path: Path) -> None:
    disk = FragileDisk(tmp_path / "disk")
    await disk.write_file("replaced", b"old")
    await disk.write_file("replaced", SAFE)
    await (await disk.open("removed")).close()
    await disk.remove("removed")
    disk.close()
    disk = begin_again(tmp_path / "disk", 0)
    assert await disk.list("") == ["replaced"]
    assert await disk.read_file("replaced") == SAFE
    disk.close()


def test_replacements_and_removals_that_did_not_return_may_be_undone(tmp_path: Path) -> None:
    found: set[tuple[bytes, bool, bool]] = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        notes = Notes(root)
        for name in ("replaced", "removed"):
            (root / name).write_bytes(b"old")
        notes.replacing("replaced")
        notes.replacing("created")
        notes.removing("removed")
        (root / "replaced").write_bytes(b"new")
        (root / "created").touch()
        (root / "removed").unlink()
        begin_again(root, seed).close()
        exist = [(root / name).exists() for name in ("created", "removed")]
        found.add(((root / "replaced").read_bytes(), exist[0], exist[1]))
    assert {content for content, _, _ in found} == {b"old", b"new"}
    assert {is_there for _, is_there, _ in found} == {True, False}
    assert {is_there for _, _, is_there in found} == {True, False}


async def test_an_index_is_what_it_was_when_its_last_flush_returned(tmp_path: Path) -> None:
    store = FragileStore(tmp_path / "index")
    for value in (b"1", b"2"):
        store.write([(b"key", value)])
        await store.flush()
    store.write([(b"key", b"3")])
    store._database.flush(wait=True)  # by RocksDB itself, unknown to the index
    store.close()
    cut_power(tmp_path / "index", 0)
    store = FragileStore(tmp_path / "index")
    assert store.get(b"key") == b"2"
    store.close()


def test_an_index_that_was_never_flushed_is_gone(tmp_path: Path) -> None:
    store = FragileStore(tmp_path / "index")
    store.write([(b"key", b"1")])
    store.close()
    cut_power(tmp_path / "index", 0)
    store = FragileStore(tmp_path / "index")
    assert store.get(b"key") is None
    store.close()
