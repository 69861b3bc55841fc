"""The index's store in production: RocksDB, without a log of its own.

The journal is the log: the index is flushed at every checkpoint, before the journal is trimmed, so
a second log would only write everything twice. RocksDB's lock file also keeps a second bookie out
of the directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import rocksdict

from magnetar_bookie.errors import BookieError
from magnetar_bookie.index import Pair

# A checkpoint writes 40 bytes for each 64 KiB of entries: small buffers keep the memory small.
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
LOG_FILES_KEPT = 2
OPEN_FILES_MAX = 64


class IndexNotOpened(BookieError):
    """RocksDB does not open its directory."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the index in {path} cannot be opened: {reason}. If another bookie runs on this "
            "directory, stop it. If the index is damaged, move its directory away: it is rebuilt "
            "from the entry logs at the next start."
        )


class RocksStore:
    """A ``SortedStore`` in the directory ``path``."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_keep_log_file_num(LOG_FILES_KEPT)
        options.set_max_open_files(OPEN_FILES_MAX)
        try:
            self._database = rocksdict.Rdict(str(path), options)
        except Exception as error:  # rocksdict raises the bare class
            raise IndexNotOpened(path, str(error)) from error
        self._write_options = rocksdict.WriteOptions()
        # The stub has only the getter.
        self._write_options.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue]
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="magnetar-index")

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``."""
        with _disk_errors():
            value = self._database.get(key)
        return None if value is None else bytes(value)

    def descend(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Pairs with ``low <= key <= high``, highest key first."""
        position = self._database.iter()
        position.seek_for_prev(high)
        while position.valid():
            key = bytes(position.key())
            if key < low:
                return
            yield key, bytes(position.value())
            position.prev()
        with _disk_errors():
            position.status()

    def write(self, pairs: Sequence[Pair]) -> None:
        """Put all pairs at once, in memory."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        with _disk_errors():
            self._database.write(batch, self._write_options)

    async def flush(self) -> None:
        """Return when everything written so far is on stable storage."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._flush)

    def _flush(self) -> None:
        with _disk_errors():
            self._database.flush(wait=True)

    def close(self) -> None:
        """Give the directory back."""
        self._executor.shutdown(wait=True)
        self._database.close()


@contextmanager
def _disk_errors() -> Generator[None, None, None]:
    """rocksdict raises the bare ``Exception`` for whatever RocksDB reports."""
    try:
        yield
    except Exception as error:
        raise OSError(f"RocksDB: {error}") from error
