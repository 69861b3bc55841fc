"""The records of lanes on the disk of the worker, in RocksDB: ``LocalCopy``.

The lanes are the state; this is a copy that may be older, and that is thrown away where it is
damaged. It may never be of no moment at all: a batch has records, and what they come to. There is
no log: what was not flushed is read from the lanes again.

What is in it, keys and lanes in UTF-8, numbers in msgpack::

    r KEY 0xff LANE -> the record of KEY in that lane
    l LANE          -> [1, keys, digest, ledger id, entry id], the ids -1 without a position
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgpack

from geminga_functions.errors import LocalCopyFailed
from geminga_functions.state.records import LaneSummary

log = logging.getLogger(__name__)

# The name of its folder, in that of its instance, which is the current one of the user's code.
LOCAL_COPY = ".state"

FORMAT = 1
RECORD, LANE, END_OF_KEY = b"r", b"l", b"\xff"
NO_POSITION = (-1, -1)

# Records that were used last stay in memory, with about so many bytes. A key costs some more.
CACHE_BYTES = 16 * 1024 * 1024
CACHED_KEY_BYTES = 200
WRITE_BUFFER_BYTES = 8 * 1024 * 1024
OPEN_FILES_MAX = 64
LOG_FILES_KEPT = 1
DROPPED_AT_ONCE = 10_000
# What RocksDB says where another process has the directory.
IN_USE_WORDS = "lock file"


class LocalCopy:
    """``Records`` in ``directory``, which is made by the first record: most functions have no
    state, and need neither RocksDB nor its memory.

    One thread at a time uses it. Raises ``LocalCopyFailed`` where the disk fails, or what is on it
    is damaged: ``close`` then removes the directory; and where it is closed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._database: Any = None
        self._summaries: dict[str, LaneSummary] = {}
        # In the order of their last use.
        self._cache: dict[str, dict[str, bytes]] = {}
        self._cached_bytes = 0
        self._has_failed = False
        self._is_closed = False
        if directory.exists():
            self._open()

    def of(self, key: str) -> Mapping[str, bytes]:
        """As ``Records.of``."""
        self._check()
        if self._database is None:
            return {}
        found = self._cache.pop(key, None)
        if found is None:
            start = RECORD + _encoded(key) + END_OF_KEY
            found = {str(lane, "utf-8"): record for lane, record in self._scan(start)}
            self._cached_bytes += _size(key, found)
            self._make_room()
        self._cache[key] = found
        return found

    def record(self, lane: str, key: str) -> bytes | None:
        """As ``Records.record``."""
        self._check()
        if self._database is None:
            return None
        cached = self._cache.get(key)
        if cached is not None:
            return cached.get(lane)
        # A tenth of the time that it takes to find those of all lanes.
        with self._failures():
            found = self._database.get(RECORD + _encoded(key) + END_OF_KEY + lane.encode())
        return None if found is None else bytes(found)

    def lanes(self) -> Collection[str]:
        """As ``Records.lanes``."""
        return self._summaries.keys()

    def summary(self, lane: str) -> LaneSummary:
        """As ``Records.summary``."""
        return self._summaries.get(lane, LaneSummary())

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """As ``Records.write``."""
        self._check()
        if self._database is None:
            self._open()
        batch = self._new_batch()
        end = END_OF_KEY + lane.encode()
        for key, record in records.items():
            batch.put(RECORD + _encoded(key) + end, record)
        ledger_id, entry_id = summary.position or NO_POSITION
        fields = [FORMAT, summary.keys, summary.digest, ledger_id, entry_id]
        batch.put(LANE + lane.encode(), cast("bytes", msgpack.packb(fields)))
        self._apply(batch)
        self._summaries[lane] = summary
        for key, record in records.items():
            cached = self._cache.get(key)
            if cached is not None:
                self._cached_bytes += len(record) - len(cached.get(lane, b""))
                # A new one: the old one may be in somebody's hands.
                self._cache[key] = {**cached, lane: record}

    def drop(self, lane: str) -> None:
        """As ``Records.drop``. Takes a while: all records are looked at."""
        self._check()
        if self._database is None:
            return
        self._cache, self._cached_bytes = {}, 0
        end = END_OF_KEY + lane.encode()
        # The summary last: as long as there are records, the lane is known.
        batch = self._new_batch()
        for key, _ in self._scan(RECORD):
            if key.endswith(end):
                batch.delete(RECORD + key)
                if batch.len() >= DROPPED_AT_ONCE:
                    self._apply(batch)
                    batch = self._new_batch()
        batch.delete(LANE + lane.encode())
        self._apply(batch)
        self._summaries.pop(lane, None)

    def close(self) -> None:
        """Give the directory back; what it has is there for the next one, unless it has failed."""
        self._is_closed = True
        if self._database is None:
            return
        database, self._database = self._database, None
        if not self._has_failed:
            try:
                database.flush(wait=True)
            except Exception as error:  # noqa: BLE001 - rocksdict raises the bare class
                log.warning(
                    "the local copy of a state was not flushed", extra={"error": str(error)}
                )
        database.close()
        if self._has_failed:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _check(self) -> None:
        # It would seem to be empty, and nobody would close what a record opened.
        if self._is_closed:
            raise LocalCopyFailed(self._directory, "it is closed")

    # --- RocksDB

    def _open(self) -> None:
        """Open what is there, or begin with nothing where that is no copy any more."""
        try:
            self._open_database()
            self._load_summaries()
        except LocalCopyFailed as error:
            if IN_USE_WORDS in str(error):
                raise
            log.warning(
                "the local copy of a state is damaged; the state is read from its topics",
                extra={"directory": str(self._directory), "error": str(error)},
            )
            if self._database is not None:
                self._database.close()
                self._database = None
            gc.collect()  # a half-read table would keep the directory locked
            shutil.rmtree(self._directory, ignore_errors=True)
            self._summaries = {}
            self._has_failed = False
            self._open_database()

    def _open_database(self) -> None:
        import rocksdict  # noqa: PLC0415 - 10 MB, which functions without state do not need

        self._new_batch = partial(rocksdict.WriteBatch, raw_mode=True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_keep_log_file_num(LOG_FILES_KEPT)
        options.set_max_open_files(OPEN_FILES_MAX)
        self._write_options = rocksdict.WriteOptions()
        # The stub has only the getter.
        self._write_options.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue]
        with self._failures():
            self._directory.mkdir(parents=True, exist_ok=True)
            self._database = rocksdict.Rdict(str(self._directory), options)

    def _apply(self, batch: Any) -> None:  # noqa: ANN401 - rocksdict is imported late
        with self._failures():
            self._database.write(batch, self._write_options)

    def _load_summaries(self) -> None:
        for lane, value in self._scan(LANE):
            match _fields(value):
                case [1, int(keys), int(digest), int(ledger_id), int(entry_id)]:
                    at = (ledger_id, entry_id)
                    position = None if at == NO_POSITION else at
                    self._summaries[str(lane, "utf-8")] = LaneSummary(keys, digest, position)
                case other:
                    raise LocalCopyFailed(self._directory, f"{other!r} is no summary of a lane")

    def _scan(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What follows ``start`` in keys that begin with it, and their values."""
        with self._failures():
            place = self._database.iter()
            place.seek(start)
            while place.valid():
                key = bytes(place.key())
                if not key.startswith(start):
                    return
                yield key[len(start) :], bytes(place.value())
                place.next()
            place.status()

    def _make_room(self) -> None:
        while self._cache and self._cached_bytes > CACHE_BYTES:
            key = next(iter(self._cache))
            self._cached_bytes -= _size(key, self._cache.pop(key))

    @contextmanager
    def _failures(self) -> Generator[None, None, None]:
        """rocksdict raises the bare ``Exception`` for whatever RocksDB reports, its file named."""
        try:
            yield
        except LocalCopyFailed:
            raise
        except Exception as error:
            self._has_failed = True
            raise LocalCopyFailed(self._directory, str(error)) from error


def _encoded(key: str) -> bytes:
    # Keys are whatever text a function gives, halves of surrogate pairs among it.
    return key.encode("utf-8", "surrogatepass")


def _fields(value: bytes) -> object:
    try:
        return msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException):
        return value


def _size(key: str, by_lane: Mapping[str, bytes]) -> int:
    return len(key) + CACHED_KEY_BYTES + sum(map(len, by_lane.values()))
