"""The records that are held of a state's lanes: for each lane, the newest record of each key.

``MemoryRecords`` holds them in memory. ``local_copy`` holds them on the worker's disk, for states
that are larger, and so that an instance which is started again does not read all of them anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class LaneSummary:
    """A summary of all records of a lane, by which two copies of it can be compared."""

    keys: int = 0
    # The exclusive or of the digests of all records (``record_digest``).
    digest: int = 0
    # (ledger id, entry id) of an entry: the records are those up to its end, and perhaps some of
    # later entries, which are applied again without harm. None if no position is known.
    position: tuple[int, int] | None = None


class Records(Protocol):
    """The records of some lanes. Its methods raise ``LocalCopyFailed`` if the disk fails."""

    def of(self, key: str) -> Mapping[str, bytes]:
        """The records of a key, by lane. Callers must not change what is returned."""
        ...

    def record(self, lane: str, key: str) -> bytes | None:
        """The record of a key in one lane, None if it has none."""
        ...

    def lanes(self) -> Collection[str]:
        """The lanes that some records are held of."""
        ...

    def summary(self, lane: str) -> LaneSummary:
        """The summary that came with the last ``write`` of the lane."""
        ...

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """Hold these records of a lane, by their keys, and its new summary: both or none."""
        ...

    def drop(self, lane: str) -> None:
        """Forget a lane."""
        ...


class MemoryRecords:
    """``Records`` in memory."""

    def __init__(self) -> None:
        # By key and lane: a value is merged from the records of one key in all lanes.
        self._by_key: dict[str, dict[str, bytes]] = {}
        self._summaries: dict[str, LaneSummary] = {}

    def of(self, key: str) -> Mapping[str, bytes]:
        """As ``Records.of``."""
        return self._by_key.get(key, {})

    def record(self, lane: str, key: str) -> bytes | None:
        """As ``Records.record``."""
        return self._by_key.get(key, {}).get(lane)

    def lanes(self) -> Collection[str]:
        """As ``Records.lanes``."""
        return self._summaries.keys()

    def summary(self, lane: str) -> LaneSummary:
        """As ``Records.summary``."""
        return self._summaries.get(lane, LaneSummary())

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """As ``Records.write``."""
        self._summaries[lane] = summary
        for key, record in records.items():
            self._by_key.setdefault(key, {})[lane] = record

    def drop(self, lane: str) -> None:
        """As ``Records.drop``."""
        self._summaries.pop(lane, None)
        for by_lane in self._by_key.values():
            by_lane.pop(lane, None)


def record_digest(key: str, record: bytes) -> int:
    """The digest of one record of a lane.

    The digest of a lane is the exclusive or of all of these. So it does not depend on their order,
    and can be kept up to date with the old and the new record of a key alone.
    """
    hashed = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)
    hashed.update(b"\xff")  # ends the key: this byte never occurs in UTF-8
    hashed.update(record)
    return int.from_bytes(hashed.digest(), "big")
