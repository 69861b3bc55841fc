"""The bookie's index under power cuts: after one it is what it was when its last flush returned.

RocksDB writes its files below Python, where this module cannot note what is safe. Its log is off,
so what was not flushed goes with any process. A flush syncs the new table, the directory and the
manifest (seen with strace: ``fdatasync``, ``fsync``, ``fdatasync``) before it returns; here each
one also makes a checkpoint of RocksDB's (hard links, 4 ms), and a power cut puts that in the
index's place. What RocksDB does on its own between flushes, such as compactions, is thus undone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import rocksdict
from tests.torture.harm.fragile_disk import FRAGILE_SUFFIX, Notes

from geminga_bookie.index.rocks_store import RocksStore

SAVED_NAME = "saved"
# Names of a checkpoint that is not whole yet, and of the one before that is on its way out.
UNFINISHED_NAME = "saved-new"
FORMER_NAME = "saved-old"


class FragileStore(RocksStore):
    """A ``RocksStore`` that suffers the power cuts announced by ``cut_power`` when it is made."""

    def __init__(self, path: Path) -> None:
        beside = path.with_name(path.name + FRAGILE_SUFFIX)
        self._saved = beside / SAVED_NAME
        self._unfinished = beside / UNFINISHED_NAME
        self._former = beside / FORMER_NAME
        if Notes(path).take_cut() is not None:
            self._put_back(path)
        super().__init__(path)

    def _put_back(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        for saved in (self._saved, self._former):  # killed between two renames: the former one
            if saved.exists():
                shutil.copytree(saved, path)
                return

    def _flush(self) -> None:
        super()._flush()
        shutil.rmtree(self._unfinished, ignore_errors=True)
        rocksdict.Checkpoint(self._database).create_checkpoint(str(self._unfinished))
        if self._saved.exists():
            shutil.rmtree(self._former, ignore_errors=True)
            self._saved.rename(self._former)
        self._unfinished.rename(self._saved)
