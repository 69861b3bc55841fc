"""The records that are held of a state's lanes: for each lane, the newest record of each key.

``Records`` holds them in memory. ``local_copy`` holds them on the worker's disk, for states that
are larger, and so that an instance which is started again does not read all of them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

# Enough to notice damage. The digests are no protection against an attacker, who could choose
# records whose digests cancel each other out. Two lanes that differ have the same digest with a
# chance of 1 in 2^64.
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


# Of a lane that no record is held of.
NO_RECORDS = LaneSummary()


@dataclass(eq=False)
class Records:
    """The records of some lanes, in memory.

    A subclass may hold them elsewhere: its methods raise ``LocalCopyFailed`` if a disk fails.
    """

    # By lane: the summary that came with its last ``write``. A lane that no record is held of has
    # none.
    summaries: dict[str, LaneSummary] = field(default_factory=dict, init=False)
    # By key and lane: a value is merged from the records of one key in all lanes.
    _by_key: dict[str, dict[str, bytes]] = field(default_factory=dict, init=False)

    def of(self, key: str) -> Mapping[str, bytes]:
        """The records of a key, by lane. Callers must not change what is returned."""
        return self._by_key.get(key, {})

    def record(self, lane: str, key: str) -> bytes | None:
        """The record of a key in one lane, None if it has none."""
        return self._by_key.get(key, {}).get(lane)

    def write(self, lane: str, records: Mapping[str, bytes], summary: LaneSummary) -> None:
        """Hold these records of a lane, by their keys, and its new summary: both or none."""
        self.summaries[lane] = summary
        for key, record in records.items():
            self._by_key.setdefault(key, {})[lane] = record

    def drop(self, lane: str) -> None:
        """Forget a lane."""
        self.summaries.pop(lane, None)
        for by_lane in self._by_key.values():
            # A key may stay behind without a lane; ``of`` takes that for no records.
            by_lane.pop(lane, None)


def record_digest(key: str, record: bytes) -> int:
    """The digest of one record of a lane.

    The digest of a lane is the exclusive or of all of these. So it does not depend on their order,
    and can be kept up to date with the old and the new record of a key alone.
    """
    hashed = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)
    # Without it the key "ab" with the record "c" would have the digest of "a" with "bc".
    hashed.update(b"\xff")  # ends the key: this byte never occurs in UTF-8
    hashed.update(record)
    return int.from_bytes(hashed.digest(), "big")
