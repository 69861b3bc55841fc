"""What the lanes of a function's state say together. Pure.

A lane is written by one instance alone, and read by all of them; lanes come in any order towards
each other. So a record says how it goes together with those of other lanes:

- a value has a version, one higher than the one that its writer knew: the highest counts, of equal
  ones that of the lane with the greater name;
- a counter is the sum of what each lane has added. Removing it begins another epoch, which leaves
  out what was added in earlier ones.

A record is msgpack and stands under a key of its lane, so that compaction may keep the newest of
each key alone::

    v:KEY -> [1, version, bytes or nil]      a value, or that there is none
    c:KEY -> [1, epoch, sum or nil]          what this lane has added to a counter, nil where it has
                                             only removed it
    p:    -> [1, position, [[sequence id, properties, payload], ...]]
                                             up to which input the lane tells, in the lane of an
                                             input partition; the results of the last inputs
    n:    -> [1, keys, digest]               how many keys of the above the lane has by now, and the
                                             digest of all their newest records
    m:    -> [1]                             that a writer has begun

Each entry ends with ``n:``, so that a lane which has lost something is found out, and a copy of a
lane that is not the lane's. REST's lane has several writers, and no ``n:``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import msgpack

from geminga_functions.errors import StateDamaged
from geminga_functions.state.changes import Changes
from geminga_functions.state.records import LaneSummary, MemoryRecords, Records, record_digest

REST_LANE = "rest"
FORMAT = 1
VALUE, COUNTER, COMMIT, COUNT, MARK = "v:", "c:", "p:", "n:", "m:"
MARK_RECORD = cast("bytes", msgpack.packb([FORMAT]))


@dataclass(frozen=True, slots=True)
class Result:
    """A result of an input, to be sent with a sequence id that is made of the input's position."""

    sequence_id: int
    properties: Mapping[str, str]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """What a lane of an input partition says of the inputs: all up to ``position`` have changed the
    state as they should. ``results`` may not be sent yet, those of earlier commits are stored."""

    position: int
    results: Sequence[Result]

    def encode(self) -> bytes:
        """The record."""
        results = [[each.sequence_id, dict(each.properties), each.payload] for each in self.results]
        return cast("bytes", msgpack.packb([FORMAT, self.position, results]))


@dataclass(frozen=True, slots=True)
class Entry:
    """What one commit writes to a lane: ``stored``, which is ``records`` and what the lane comes to
    ``after`` them."""

    lane: str
    records: Mapping[str, bytes]
    stored: Mapping[str, bytes]
    after: LaneSummary


class StateTable:
    """The state as far as it has been read, changes of one's own included.

    ``lane`` is one's own; ``records`` holds what lanes have, but for REST's, which is always held
    in memory: without counts nothing says whether a copy of it is what the lane has.
    """

    def __init__(self, lane: str, records: Records | None = None) -> None:
        self._lane = lane
        self._records: Records = records or MemoryRecords()
        self._uncounted = MemoryRecords()
        # Records of the own lane that count here, and that the lane does not have yet.
        self._staged: dict[str, bytes] = {}
        # By lane: what its newest count says, of those read here.
        self._said: dict[str, tuple[int, int]] = {}
        # Lanes of whose last entry some records were not read yet.
        self._unfinished: set[str] = set()

    # --- reading

    def get(self, key: str) -> bytes | None:
        """The value of a key, None if it has none."""
        return self._value(key)[1]

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        return self._value(key)[0]

    def counter(self, key: str) -> int:
        """The value of a counter, 0 if it is not there."""
        return sum(added or 0 for added in self._added(key)[1].values())

    def has_counter(self, key: str) -> bool:
        """Whether something was ever added to it since it was removed."""
        return any(added is not None for added in self._added(key)[1].values())

    def commit_of(self, lane: str) -> Commit | None:
        """The last commit in the lane of an input partition, None if there is none."""
        record = self._of(COMMIT).get(lane)
        return None if record is None else cast("Commit", _decoded(lane, COMMIT, record))

    def _value(self, key: str) -> tuple[int, bytes | None]:
        """The version and the data of the record that counts."""
        found: tuple[int, str, bytes | None] = (0, "", None)
        for lane, record in self._of(VALUE + key).items():
            version, data = cast("tuple[int, bytes | None]", _decoded(lane, VALUE + key, record))
            if (version, lane) > found[:2]:
                found = version, lane, data
        return found[0], found[2]

    def _added(self, key: str) -> tuple[int, dict[str, int | None]]:
        """The epoch of a counter, and by lane what was added in it."""
        newest, by_lane = 0, dict[str, int | None]()
        for lane, record in self._of(COUNTER + key).items():
            epoch, added = cast("tuple[int, int | None]", _decoded(lane, COUNTER + key, record))
            if epoch > newest:
                newest, by_lane = epoch, {}
            if epoch == newest:
                by_lane[lane] = added
        return newest, by_lane

    def _of(self, record_key: str) -> Mapping[str, bytes]:
        found = self._records.of(record_key)
        uncounted = self._uncounted.of(record_key)
        staged = self._staged.get(record_key)
        if uncounted:
            found = {**found, **uncounted}
        return found if staged is None else {**found, self._lane: staged}

    # --- changing

    def records_of(self, lane: str, changes: Changes) -> dict[str, bytes]:
        """The records, by their keys, which make these changes in a lane once they are there."""
        records: dict[str, tuple[object, ...]] = {}
        for key, data in changes.values.items():
            version, before = self._value(key)
            if data is not None or before is not None:
                records[VALUE + key] = FORMAT, version + 1, data
        for key, change in changes.counters.items():
            epoch, by_lane = self._added(key)
            added = by_lane.get(lane)
            if change.is_removed:
                epoch, added = epoch + 1, None
            if change.added is not None:
                added = (added or 0) + change.added
            records[COUNTER + key] = FORMAT, epoch, added
        return {key: cast("bytes", msgpack.packb(record)) for key, record in records.items()}

    def stage(self, records: Mapping[str, bytes]) -> None:
        """Let records of the own lane count here, which the lane does not have yet."""
        self._staged |= records

    @property
    def staged(self) -> Mapping[str, bytes]:
        """The records that the own lane does not have yet."""
        return self._staged

    def entry_of(self, lane: str, records: Mapping[str, bytes]) -> Entry:
        """What is stored next in a lane: ``records``, and behind them what the lane comes to then.
        Who has read that has read all of the entry."""
        if lane == REST_LANE:
            return Entry(lane, records, records, LaneSummary())
        after = self._with(lane, records)
        count = cast("bytes", msgpack.packb([FORMAT, after.keys, after.digest]))
        return Entry(lane, records, {**records, COUNT: count}, after)

    def keep(self, entry: Entry, position: tuple[int, int] | None) -> None:
        """Its lane has an entry now that was made last of it: at ``position``, None where that is
        not known."""
        lane, records, after = entry.lane, entry.records, entry.after
        if lane == REST_LANE:
            self._uncounted.write(lane, records, after)
        else:
            if position is None:
                position = self._records.summary(lane).position
            self._records.write(lane, records, replace(after, position=position))
            self._said[lane] = after.keys, after.digest
        if lane == self._lane:
            for key, record in records.items():
                if self._staged.get(key) is record:
                    del self._staged[key]

    def _with(
        self, lane: str, records: Mapping[str, bytes], position: tuple[int, int] | None = None
    ) -> LaneSummary:
        before = self._records.summary(lane)
        keys, digest = before.keys, before.digest
        for key, record in records.items():
            old = self._records.record(lane, key)
            if old is None:
                keys += 1
            else:
                digest ^= record_digest(key, old)
            digest ^= record_digest(key, record)
        return LaneSummary(keys, digest, position or before.position)

    # --- what lanes say

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that anything is held of, but for REST's."""
        return frozenset(self._records.lanes())

    def begin(self, lane: str) -> tuple[int, int] | None:
        """A lane is read anew: returns (ledger id, entry id) of the entry to begin with, None for
        the first there is."""
        self._said.pop(lane, None)
        self._unfinished.discard(lane)
        return self._records.summary(lane).position

    def take(self, lane: str, read: Iterable[tuple[str, bytes, tuple[int, int]]]) -> None:
        """Take in records as they were read from a lane: keys, records, the positions of their
        entries. What was taken in before changes nothing. Raises ``StateDamaged``.
        """
        new: dict[str, bytes] = {}
        position: tuple[int, int] | None = None
        for key, record, at in read:
            fields = _decoded(lane, key, record)
            if key == MARK:
                continue
            if key == COUNT:
                self._said[lane], position = cast("tuple[int, int]", fields), at
                self._unfinished.discard(lane)
            else:
                new[key] = record
                self._unfinished.add(lane)
        if lane == REST_LANE:
            self._uncounted.write(lane, new, LaneSummary())
        elif new or position is not None:
            self._records.write(lane, new, self._with(lane, new, position))

    def check(self, lane: str, *, is_at_end: bool = True) -> None:
        """Raise ``StateDamaged`` where a lane lacks something that it had: it was trimmed or
        truncated, and no compaction has kept what went; or where what is held of it is not its.

        In the midst of an entry, which the end of a lane never is, nothing can be said.
        """
        if lane == REST_LANE or (lane in self._unfinished and not is_at_end):
            return
        held = self._records.summary(lane)
        keys, digest = self._said.get(lane, (0, 0))
        if held.keys < keys:
            reason = f"it has {held.keys} of {keys} keys: the topic was trimmed"
        elif (held.keys, held.digest) != (keys, digest):
            reason = f"its {held.keys} keys do not have the values that were counted last"
        else:
            return
        raise StateDamaged(lane, COUNT, reason)

    def forget(self, lane: str) -> None:
        """Hold nothing more of a lane."""
        self._records.drop(lane)
        self._uncounted.drop(lane)
        self.begin(lane)


def _decoded(lane: str, key: str, record: bytes) -> tuple[object, ...] | Commit:
    """What a record says. Raises ``StateDamaged``."""
    try:
        fields = msgpack.unpackb(record)
    except (ValueError, msgpack.UnpackException) as error:
        raise StateDamaged(lane, key, str(error)) from error
    match key[:2], fields:
        case "v:", [1, int(version), bytes() | None as data]:
            return version, data
        case "c:", [1, int(epoch), int() | None as added]:
            return epoch, added
        case "n:", [1, int(keys), int(digest)]:
            return keys, digest
        case "m:", [1]:
            return ()
        case "p:", [1, int(position), list(results)]:
            return Commit(position, _results(lane, results))
        case _:
            raise StateDamaged(lane, key, f"{fields!r} is no record of format {FORMAT}")


def _results(lane: str, fields: Sequence[object]) -> Sequence[Result]:
    results: list[Result] = []
    for each in fields:
        match each:
            case [int(sequence_id), dict(properties), bytes(payload)]:
                results.append(Result(sequence_id, cast("dict[str, str]", properties), payload))
            case _:
                raise StateDamaged(lane, COMMIT, f"{each!r} is no result")
    return results
