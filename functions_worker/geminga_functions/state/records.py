"""What is held of the lanes of a state: the newest record of each key of each lane.

``MemoryRecords`` holds it in memory; ``local_copy`` on the disk of the worker, for states that are
larger, and so that an instance which starts again does not read all of it anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class LaneSummary:
    """What the records of a lane come to: how many ``keys`` they have, and the ``digest`` of all.

    ``position`` is (ledger id, entry id) of an entry: the records are those up to its end, or some
    of a later entry besides. None where none is known.
    """

    keys: int = 0
    digest: int = 0
    position: tuple[int, int] | None = None


class Records(Protocol):
    """The records of some lanes. Raises ``LocalCopyFailed`` where a disk fails."""

    def of(self, key: str) -> Mapping[str, bytes]:
        """The records of a key, by lane. Nobody changes what is returned."""
        ...

    def record(self, lane: str, key: str) -> bytes | None:
        """The record of a key in one lane, None if it has none."""
        ...

    def lanes(self) -> Collection[str]:
        """The lanes that anything is held of."""
        ...

    def summary(self, lane: str) -> LaneSummary:
        """What was told of the lane last."""
        ...

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """Hold ``records`` of a lane, by their keys, and what the lane's come to: both or none."""
        ...

    def drop(self, lane: str) -> None:
        """Hold nothing more of a lane."""
        ...


class MemoryRecords:
    """``Records`` in memory."""

    def __init__(self) -> None:
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
    """The part of one record in the digest of its lane, which is the exclusive or of all parts: so
    it depends on no order, and changes with one record by that record alone."""
    hashed = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)
    hashed.update(b"\xff")  # ends every key: no UTF-8 has it
    hashed.update(record)
    return int.from_bytes(hashed.digest(), "big")
