"""Real files that a power cut harms: what was written and not synced is thrown away.

A SIGKILL leaves everything that was written in the kernel's hands, so it proves nothing about
syncing. ``FragileDisk`` is the real ``FileDisk`` with a memory: beside its directory, in
``<root>.fragile``, it notes what is safe before it says so to the bookie. ``cut_power`` leaves a
note there; the bookie's next process throws away what was not safe before it opens anything.
So the loss is that of all processes since the last sync, not only of the last one.

What is modelled: bytes behind the last sync that returned are cut off, all or from anywhere among
them on; a replacement or removal that did not return may be undone. What is not: sectors that
survive behind lost ones (the simulated disk has those), and a truncation that is undone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from urllib.parse import quote, unquote

from geminga_runtime.disk import Chunk, DiskFile
from geminga_runtime.file_disk import FileDisk

FRAGILE_SUFFIX = ".fragile"
CUT_NAME = "power-cut"
SIZE = struct.Struct(">Q")
# How often nothing of what was not safe survives; else a part of it does.
NOTHING_PROBABILITY = 0.5


def cut_power(root: Path, seed: int) -> None:
    """The files below ``root`` lose what is not safe; to be called before the process is killed."""
    Notes(root).announce_cut(seed)


class Notes:
    """What is known of the files below ``root``, kept in files that outlive the process.

    ::

        <root>.fragile/sizes/<path>      8 bytes: so much of the file is safe; no such note: all
        <root>.fragile/replaced/<path>   the content before a replacement that has not returned
        <root>.fragile/created/<path>    there was no such file before one
        <root>.fragile/removed/<path>    a file whose removal has not returned
        <root>.fragile/power-cut         the seed of a power cut that is to be suffered
        <root>.fragile/lost              how many bytes all power cuts took
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root.with_name(root.name + FRAGILE_SUFFIX)
        for name in ("sizes", "replaced", "created", "removed"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)

    def announce_cut(self, seed: int) -> None:
        """Have the next process suffer a power cut."""
        (self._directory / CUT_NAME).write_text(str(seed))

    def take_cut(self) -> Random | None:
        """The chance of the power cut that is to be suffered now, if any."""
        note = self._directory / CUT_NAME
        try:
            seed = int(note.read_text())
        except FileNotFoundError:
            return None
        note.unlink()
        return Random(seed)

    @property
    def lost_bytes(self) -> int:
        """How many bytes all power cuts took; zeros at the end of a file are none."""
        note = self._directory / "lost"
        return int(note.read_text()) if note.exists() else 0

    def size_note(self, path: str) -> Path:
        """Where the safe size of ``path`` is noted."""
        return self._note("sizes", path)

    def replacing(self, path: str) -> None:
        """``path`` is being replaced as a whole."""
        target = self._root / path
        if target.exists():
            self._note("replaced", path).write_bytes(target.read_bytes())
        else:
            self._note("created", path).touch()

    def replaced(self, path: str) -> None:
        """That is safe now, all of it."""
        for kind in ("sizes", "replaced", "created"):
            self._note(kind, path).unlink(missing_ok=True)

    def removing(self, path: str) -> None:
        """``path`` is being removed."""
        if (self._root / path).exists():
            self._note("removed", path).unlink(missing_ok=True)
            self._note("removed", path).hardlink_to(self._root / path)

    def removed(self, path: str) -> None:
        """That is safe now."""
        for kind in ("sizes", "removed"):
            self._note(kind, path).unlink(missing_ok=True)

    def begin(self) -> None:
        """A process begins: suffer the power cut, if one was announced."""
        chance = self.take_cut()
        if chance is not None:
            self._undo_unfinished(chance)
            lost_bytes = sum(self._lose(note, chance) for note in self._notes("sizes"))
            (self._directory / "lost").write_text(str(self.lost_bytes + lost_bytes))
        # A process that was only killed: what it did has happened, and is synced with the next
        # change of the directory.
        for kind in ("replaced", "created", "removed"):
            for note in self._notes(kind):
                note.unlink()

    def _undo_unfinished(self, chance: Random) -> None:
        for note in self._notes("replaced"):
            if chance.random() < 0.5:
                self._target(note).write_bytes(note.read_bytes())
        for note in self._notes("created"):
            if chance.random() < 0.5:
                self._target(note).unlink(missing_ok=True)
        for note in self._notes("removed"):
            if chance.random() < 0.5 and not self._target(note).exists():
                self._target(note).hardlink_to(note)

    def _lose(self, note: Path, chance: Random) -> int:
        """Cut a file to what is safe, or a little more; returns how many bytes were lost."""
        target = self._target(note)
        (safe,) = SIZE.unpack(note.read_bytes())
        if not target.exists() or target.stat().st_size <= safe:
            return 0
        with target.open("r+b") as file:
            file.seek(safe)
            tail = file.read().rstrip(b"\0")  # what was only reserved is no loss
            kept = 0 if chance.random() < NOTHING_PROBABILITY else chance.randint(0, len(tail))
            file.truncate(safe + kept)
        return len(tail) - kept

    def _note(self, kind: str, path: str) -> Path:
        return self._directory / kind / quote(path, safe="")

    def _notes(self, kind: str) -> list[Path]:
        return sorted((self._directory / kind).iterdir())

    def _target(self, note: Path) -> Path:
        return self._root / unquote(note.name)


class FragileDisk(FileDisk):
    """A ``FileDisk`` that suffers the power cuts announced by ``cut_power`` when it is made."""

    def __init__(self, root: Path, *, threads: int = 2, is_synced: bool = True) -> None:
        self._notes = Notes(root)
        self._notes.begin()
        self._is_honest = is_synced
        super().__init__(root, threads=threads, is_synced=is_synced)

    async def open(self, path: str, *, reserve_bytes: int = 0, is_reread: bool = True) -> DiskFile:
        """As ``Disk.open``; what a file holds that was never synced stays in danger."""
        note = self._notes.size_note(path)
        if not note.exists():
            target = self._root / path
            note.write_bytes(SIZE.pack(target.stat().st_size if target.exists() else 0))
        file = await super().open(path, reserve_bytes=reserve_bytes, is_reread=is_reread)
        return FragileFile(file, note, is_synced=self._is_honest)

    async def write_file(self, path: str, content: bytes) -> None:
        """As ``Disk.write_file``."""
        self._notes.replacing(path)
        await super().write_file(path, content)
        self._notes.replaced(path)

    async def remove(self, path: str) -> None:
        """As ``Disk.remove``."""
        self._notes.removing(path)
        await super().remove(path)
        self._notes.removed(path)


class FragileFile:
    """A ``DiskFile`` that notes how much of it is safe, before its user is told.

    Without ``is_synced`` nothing ever is: then a power cut must be seen to lose messages.
    """

    def __init__(self, file: DiskFile, note: Path, *, is_synced: bool) -> None:
        self._file = file
        self._is_synced = is_synced
        self._descriptor = os.open(note, os.O_RDWR | os.O_CLOEXEC)
        (self._safe,) = SIZE.unpack(os.pread(self._descriptor, SIZE.size, 0))

    @property
    def size(self) -> int:
        return self._file.size

    async def append(self, chunks: Sequence[Chunk]) -> int:
        return await self._file.append(chunks)

    async def append_and_sync(self, chunks: Sequence[Chunk]) -> int:
        offset = await self._file.append_and_sync(chunks)
        self._note_safe(offset + sum(map(len, chunks)))
        return offset

    async def sync(self) -> None:
        size = self._file.size
        await self._file.sync()
        self._note_safe(size)

    async def read(self, offset: int, length: int) -> bytes:
        return await self._file.read(offset, length)

    async def truncate(self, size: int) -> None:
        await self._file.truncate(size)
        self._safe = min(self._safe, size)
        self._note_safe(size)

    async def close(self) -> None:
        await self._file.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _note_safe(self, size: int) -> None:
        # A file may be closed while something waits for its sync; that one is never told, then.
        if self._is_synced and self._descriptor >= 0:
            self._safe = max(self._safe, size)
            os.pwrite(self._descriptor, SIZE.pack(self._safe), 0)
