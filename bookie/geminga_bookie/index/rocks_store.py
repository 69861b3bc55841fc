"""The index's store in production: RocksDB, without a log of its own.

The journal is the log: each checkpoint flushes the index before it trims the journal, so a second
log would only write everything twice. What RocksDB has in memory when the process dies is written
again by the next checkpoint. RocksDB's lock file also keeps a second bookie out of the directory.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import rocksdict

from geminga_bookie.errors import BookieError
from geminga_bookie.formats.index_v2 import Pair

log = logging.getLogger(__name__)

# Where the index is, below a bookie's data directory.
INDEX_DIRECTORY = "index"
# A checkpoint writes 40 bytes for each 64 KiB of entries: small buffers keep the memory small.
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
LOG_FILES_KEPT = 2
# ``OWN_FILES`` in ``part`` has room for as many.
OPEN_FILES_MAX = 64

# How RocksDB's messages begin where its files are not what it wrote. Everything else (another
# process has it open, no rights) says nothing against the files.
DAMAGE_WORDS = ("Corruption", "IO error: No such file")
# What a damaged index's directory is called from then on, with a number behind it.
SET_ASIDE_SUFFIX = ".damaged-"
# The damaged files are kept for people to look at; the bookie never deletes them.
SET_ASIDE_MAX = 1000


class IndexNotOpened(BookieError):
    """RocksDB does not open its directory."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"the index in {path} cannot be opened: {reason}. If another bookie runs on this "
            "directory, stop it. If the index is damaged, move its directory away: it is rebuilt "
            "from the entry logs at the next start."
        )


def open_index(path: Path) -> RocksStore:
    """Open the index's store in ``path``; set a damaged one aside and return an empty one.

    The bookie rebuilds an empty index from the entry logs. Raises ``IndexNotOpened``.
    """
    try:
        store = RocksStore(path)
    except IndexNotOpened as error:
        # Words, not the error, which keeps a half-read table open.
        damage = str(error.__cause__)
        # A lock that another process holds must not move its index away.
        if not damage.startswith(DAMAGE_WORDS):
            raise
    else:
        damage = _damage_in(store)
        if not damage:
            return store
        store.close()
    # A half-read table in what is left of an error would keep the directory locked.
    gc.collect()
    for number in range(1, SET_ASIDE_MAX):
        aside = path.with_name(f"{path.name}{SET_ASIDE_SUFFIX}{number}")
        if not aside.exists():
            break
    else:
        raise IndexNotOpened(path, f"it is damaged, and {SET_ASIDE_MAX} before it were set aside")
    # Renamed as a whole: a crash leaves either the damaged index or none, and both are dealt with
    # at the next start.
    path.rename(aside)
    log.error(
        "the index is damaged and was set aside; it is rebuilt from the entry logs, and the "
        "directory that was set aside can then be deleted",
        extra={"directory": str(path), "set_aside": str(aside), "error": damage},
    )
    return RocksStore(path)


def _damage_in(store: RocksStore) -> str:
    """What is wrong with what a bookie reads of its index before anything else; empty: nothing.

    Damage of blocks and ledgers shows later, where they are read, as ``OSError``. Raises
    ``OSError`` for what says nothing against the files.
    """
    try:
        # Blocks and ledgers are left out: to read them all would take minutes at each start of a
        # large bookie.
        for prefix in (b"e", b"m"):
            for _ in store.descend(prefix + b"\xff", prefix):
                pass
    except OSError as error:
        if not str(error.__cause__).startswith(DAMAGE_WORDS):
            raise
        return str(error.__cause__)
    return ""


class RocksStore:
    """A ``SortedStore`` in the directory ``path``.

    A read-only one can be opened while a bookie has the directory open, for tools.
    """

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        if not is_read_only:
            path.mkdir(parents=True, exist_ok=True)
        # Raw mode: keys and values are bytes, and rocksdict adds nothing of its own to them.
        access = rocksdict.AccessType
        access_type = access.read_only() if is_read_only else access.read_write()
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(create_if_missing=not is_read_only)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_keep_log_file_num(LOG_FILES_KEPT)
        options.set_max_open_files(OPEN_FILES_MAX)
        try:
            self._database = rocksdict.Rdict(str(path), options, access_type=access_type)
        except Exception as error:  # rocksdict raises the bare class
            raise IndexNotOpened(path, str(error)) from error
        self._write_options = rocksdict.WriteOptions()
        # The stub has only the getter.
        self._write_options.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue]
        # One thread: only flushes wait for the disk, and they come one at a time. Reads, and writes
        # to memory, are made on the event loop's thread.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="geminga-index")

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``."""
        with _disk_errors():
            value = self._database.get(key)
        return None if value is None else bytes(value)

    def descend(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Pairs with ``low <= key <= high``, highest key first."""
        # An iterator of RocksDB sees the database as it was when the iterator was made.
        position = self._database.iter()
        # The last key up to ``high``: from there the iterator goes down.
        position.seek_for_prev(high)
        while position.valid():
            key = bytes(position.key())
            # The caller may also stop early, and most do: a lookup takes one pair.
            if key < low:
                return
            yield key, bytes(position.value())
            position.prev()
        with _disk_errors():
            position.status()

    def write(self, pairs: Sequence[Pair], removed: Sequence[bytes] = ()) -> None:
        """Put all pairs and remove the keys ``removed``, as one batch, in memory."""
        # A batch lies in one memtable as a whole, and memtables reach the disk in their order. So a
        # crash leaves the first batches, each of them whole, although there is no log.
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        for key in removed:
            batch.delete(key)
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
        """Close the database, which gives the directory free."""
        # First the flush that may be running: the database must not be closed under it.
        self._executor.shutdown(wait=True)
        self._database.close()


@contextmanager
def _disk_errors() -> Generator[None, None, None]:
    """Turn what RocksDB reports into ``OSError``: rocksdict raises the bare ``Exception``."""
    try:
        yield
    except Exception as error:
        way_out = ""
        if str(error).startswith(DAMAGE_WORDS):
            way_out = "; stop the bookie and move the index's directory away: it is then rebuilt"
        raise OSError(f"RocksDB: {error}{way_out}") from error
