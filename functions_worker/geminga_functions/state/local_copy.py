"""A copy of the records of lanes on the worker's disk, in RocksDB: ``LocalCopy``.

The state is in the lanes. The copy may be older than they are, and is removed if it is damaged. But
it is consistent at any moment: records and the summary of their lane are written in one batch.
There is no write-ahead log: what was not flushed is read from the lanes again.

Its entries, with keys and lanes in UTF-8, and numbers in msgpack::

    r KEY 0xff LANE -> the record of KEY in that lane
    l LANE          -> [1, keys, digest, ledger id, entry id], the lane's summary; the ids are -1
                       without a position
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgpack

from geminga_functions.errors import LocalCopyFailed
from geminga_functions.state.records import LaneSummary, Records

log = logging.getLogger(__name__)

# The name of its folder, in the folder of the instance, where user code runs and may see it.
LOCAL_COPY = ".state"

FORMAT = 1
RECORD, LANE, END_OF_KEY = b"r", b"l", b"\xff"
NO_POSITION = (-1, -1)

# The size of the cache of records that were used last, and what a key takes besides its bytes.
CACHE_BYTES = 16 * 1024 * 1024
CACHED_KEY_BYTES = 200
# RocksDB keeps up to two of these; its default of 64 MiB each would be more than most functions
# take altogether.
WRITE_BUFFER_BYTES = 8 * 1024 * 1024
# A worker may run hundreds of instances in threads, whose descriptors add up.
OPEN_FILES_MAX = 64
LOG_FILES_KEPT = 1
# Records that one batch removes.
DROPPED_AT_ONCE = 10_000
# Occurs in RocksDB's error if another process has opened the directory.
IN_USE_WORDS = "lock file"


class LocalCopy(Records):
    """Records in ``directory``, which the first record creates.

    Most functions have no state, and then need neither RocksDB nor its memory. One thread at a time
    uses a copy. Methods raise ``LocalCopyFailed`` if the disk fails or what is on it is damaged, in
    which case ``close`` removes the directory; and if the copy is closed.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        # None until there is a record.
        self._database: Any = None
        # The records of a key, by lane; keys in the order of their last use.
        self._cache: dict[str, dict[str, bytes]] = {}
        self._cached_bytes = 0
        # Set by the first error of RocksDB: ``close`` then removes the copy, which the next run
        # could not rely on.
        self._has_failed = False
        self._is_closed = False
        if directory.exists():
            self._open()

    def of(self, key: str) -> Mapping[str, bytes]:
        """As ``Records.of``."""
        self._check()
        if self._database is None:
            return {}
        # Taken out and put back at the end: a dict keeps the order of insertion, so the first key
        # is the one that was used least recently. A key without records is cached as well.
        found = self._cache.pop(key, None)
        if found is None:
            start = RECORD + _encoded(key) + END_OF_KEY
            found = {str(lane, "utf-8"): record for lane, record in self._scan(start)}
            self._cached_bytes += _size(key, found)
            # The key itself is not in the cache yet: however large, it stays for this once.
            while self._cache and self._cached_bytes > CACHE_BYTES:
                oldest = next(iter(self._cache))
                self._cached_bytes -= _size(oldest, self._cache.pop(oldest))
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
        # This takes a tenth of the time of a scan for the records of all lanes.
        with self._failures():
            found = self._database.get(RECORD + _encoded(key) + END_OF_KEY + lane.encode())
        return None if found is None else bytes(found)

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """As ``Records.write``."""
        self._check()
        if self._database is None:
            self._open()
        batch = self._new_batch()
        end = END_OF_KEY + lane.encode()
        for key, record in records.items():
            batch.put(RECORD + _encoded(key) + end, record)
        # In the same batch: records and summary agree, whatever of it is on the disk.
        ledger_id, entry_id = summary.position or NO_POSITION
        fields = [FORMAT, summary.keys, summary.digest, ledger_id, entry_id]
        batch.put(LANE + lane.encode(), cast("bytes", msgpack.packb(fields)))
        # First the disk, then the cache and the summaries: if the write fails, memory is as before.
        self._apply(batch)
        self.summaries[lane] = summary
        for key, record in records.items():
            cached = self._cache.get(key)
            if cached is not None:
                self._cached_bytes += len(record) - len(cached.get(lane, b""))
                # A new dict, since a caller of ``of`` may still use the old one.
                self._cache[key] = {**cached, lane: record}

    def drop(self, lane: str) -> None:
        """As ``Records.drop``. Slow: it scans all records."""
        self._check()
        if self._database is None:
            return
        # The cached dicts may hold records of the lane.
        self._cache, self._cached_bytes = {}, 0
        end = END_OF_KEY + lane.encode()
        # The summary goes last: the lane stays known as long as it has records, and can be dropped
        # again after a crash.
        batch = self._new_batch()
        for key, _ in self._scan(RECORD):
            if key.endswith(end):
                batch.delete(RECORD + key)
                if batch.len() >= DROPPED_AT_ONCE:
                    self._apply(batch)
                    batch = self._new_batch()
        batch.delete(LANE + lane.encode())
        self._apply(batch)
        self.summaries.pop(lane, None)

    def close(self) -> None:
        """Flush and close the copy, for the next one to open; remove it if it has failed."""
        self._is_closed = True
        if self._database is None:
            return
        # Whatever happens below, it is not closed a second time.
        database, self._database = self._database, None
        if not self._has_failed:
            try:
                database.flush(wait=True)
            except Exception as error:  # noqa: BLE001 - rocksdict raises the bare class
                log.warning(
                    "the local copy of a state was not flushed", extra={"error": str(error)}
                )
        # RocksDB must release its lock before another process, or the removal below, may have the
        # directory.
        database.close()
        if self._has_failed:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _check(self) -> None:
        # A closed copy would seem to be empty, and a record would open the database again, which
        # nothing would close then.
        if self._is_closed:
            raise LocalCopyFailed(self._directory, "it is closed")

    # --- RocksDB

    def _open(self) -> None:
        """Open the copy, or begin an empty one if it is damaged."""
        try:
            self._open_database()
        except LocalCopyFailed as error:
            # Another process has it open: it must not be removed.
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
            self.summaries = {}
            self._has_failed = False
            self._open_database()

    def _open_database(self) -> None:
        """Open the database, and load the summaries of lanes. Raises ``LocalCopyFailed``."""
        import rocksdict  # noqa: PLC0415 - 10 MB, which functions without state do not need

        # Raw mode: keys and values are bytes, without a type that rocksdict would add.
        self._new_batch = partial(rocksdict.WriteBatch, raw_mode=True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        # RocksDB keeps a thousand of its own logs by default.
        options.set_keep_log_file_num(LOG_FILES_KEPT)
        options.set_max_open_files(OPEN_FILES_MAX)
        self._write_options = rocksdict.WriteOptions()
        # The stub has only the getter.
        self._write_options.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue]
        with self._failures():
            self._directory.mkdir(parents=True, exist_ok=True)
            self._database = rocksdict.Rdict(str(self._directory), options)
        for lane, value in self._scan(LANE):
            try:
                fields: object = msgpack.unpackb(value)
            except (ValueError, msgpack.UnpackException):
                fields = value
            match fields:
                case [1, int(keys), int(digest), int(ledger_id), int(entry_id)]:
                    at = (ledger_id, entry_id)
                    position = None if at == NO_POSITION else at
                    self.summaries[str(lane, "utf-8")] = LaneSummary(keys, digest, position)
                case other:
                    raise LocalCopyFailed(self._directory, f"{other!r} is no summary of a lane")

    def _apply(self, batch: Any) -> None:  # noqa: ANN401 - rocksdict is imported late
        with self._failures():
            self._database.write(batch, self._write_options)

    def _scan(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with ``start``: the rest of the key, and the value."""
        with self._failures():
            place = self._database.iter()
            place.seek(start)
            while place.valid():
                key = bytes(place.key())
                if not key.startswith(start):
                    return
                yield key[len(start) :], bytes(place.value())
                place.next()
            # An iterator that met an error just stops to be valid: without this a damaged table
            # would look like one that ends here.
            place.status()

    @contextmanager
    def _failures(self) -> Generator[None, None, None]:
        """Turn RocksDB's errors, for which rocksdict raises bare ``Exception``s, into ours."""
        try:
            yield
        except LocalCopyFailed:
            raise
        except Exception as error:
            self._has_failed = True
            raise LocalCopyFailed(self._directory, str(error)) from error


def _encoded(key: str) -> bytes:
    # A function may use any text as a key, even with half a surrogate pair, which UTF-8 lacks.
    return key.encode("utf-8", "surrogatepass")


def _size(key: str, by_lane: Mapping[str, bytes]) -> int:
    return len(key) + CACHED_KEY_BYTES + sum(map(len, by_lane.values()))
