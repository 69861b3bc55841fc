"""What the records of all lanes of a function's state mean together. Pure.

A lane is written by one instance and read by all of them. Instances see the records of different
lanes in different orders, so a record says how it is merged with those of other lanes:

- a value has a version, one higher than the version that its writer knew. The highest version
  counts; of equal ones, that of the lane with the greater name;
- a counter is the sum of what each lane has added. Removing it begins a new epoch, and what was
  added in earlier epochs does not count any more.

A record is a message of its lane, msgpack under a key; compaction keeps the newest of each key::

    v:KEY -> [1, version, bytes or nil]      a value, nil if it was removed
    c:KEY -> [1, epoch, sum or nil]          what this lane has added to a counter, nil if it has
                                             only removed it
    p:    -> [1, position, [[sequence id, properties, payload], ...]]
                                             a commit, in the lane of an input partition: the
                                             position of the last input, and the results of the
                                             inputs since the commit before
    n:    -> [1, keys, digest]               the count: how many of the above keys the lane has by
                                             now, and the digest of their newest records
    m:    -> [1]                             a mark: a writer has opened the lane

Each entry ends with the count. A reader compares it with the records that it holds, and notices a
lane that has lost records, or a local copy that belongs to another lane. REST's lane has several
writers, and therefore no count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import msgpack

from geminga_functions.errors import StateDamaged
from geminga_functions.state.changes import Changes
from geminga_functions.state.records import NO_RECORDS, LaneSummary, Records, record_digest

REST_LANE = "rest"
FORMAT = 1
VALUE, COUNTER, COMMIT, COUNT, MARK = "v:", "c:", "p:", "n:", "m:"
MARK_RECORD = cast("bytes", msgpack.packb([FORMAT]))


@dataclass(frozen=True, slots=True)
class Result:
    """A result of an input, sent with a sequence id that is made of the input's position."""

    sequence_id: int
    properties: Mapping[str, str]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of inputs, in the lane of their partition."""

    # The sequence id of the last input: the changes of all inputs up to it are in the state.
    position: int
    # Of the inputs of this commit: they may not be stored yet. Those of earlier commits are.
    results: Sequence[Result]

    def encode(self) -> bytes:
        """Encode the record of the commit."""
        results = [[each.sequence_id, dict(each.properties), each.payload] for each in self.results]
        return cast("bytes", msgpack.packb([FORMAT, self.position, results]))


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written to a lane at once."""

    lane: str
    records: Mapping[str, bytes]
    # The records, and the count behind them.
    stored: Mapping[str, bytes]
    # The summary of the lane with these records.
    after: LaneSummary


@dataclass(slots=True, eq=False)
class StateTable:
    """The state as far as its lanes have been read, together with changes that are not stored yet.

    ``lane`` is the lane of the writer that uses this table. ``records`` holds the records of lanes.
    """

    lane: str
    # Of all lanes but REST's.
    records: Records = field(default_factory=Records)
    # Records of the writer's lane that apply here already, and are not stored yet. The writer adds
    # them; ``keep`` takes them out.
    staged: dict[str, bytes] = field(default_factory=dict, init=False)
    # The records of REST's lane. They are always held in memory: without a count, a local copy
    # could not be compared with the lane.
    _uncounted: Records = field(default_factory=Records, init=False)
    # By lane: the keys and the digest of the newest count that was read or written.
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    # Lanes whose last entry has not been read to its end. A lane is among them between two reads
    # only, where ``read_many`` has returned a part of an entry.
    _unfinished: set[str] = field(default_factory=set, init=False)

    # --- reading

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        return self.value(key)[1]

    def sum_of(self, key: str) -> int | None:
        """As ``StateView.sum_of``."""
        added = [each for each in self._added(key)[1].values() if each is not None]
        return sum(added) if added else None

    def commit_of(self, lane: str) -> Commit | None:
        """The last commit in the lane of an input partition, None if there is none."""
        record = self._of(COMMIT).get(lane)
        # ``_decoded`` gives a commit for this key.
        return None if record is None else cast("Commit", _decoded(lane, COMMIT, record))

    def value(self, key: str) -> tuple[int, bytes | None]:
        """The version of a value, 0 if it never had one, and its bytes, None if it has none now.

        Of all lanes, the record that counts has them.
        """
        found: tuple[int, str, bytes | None] = (0, "", None)
        for lane, record in self._of(VALUE + key).items():
            version, data = cast("tuple[int, bytes | None]", _decoded(lane, VALUE + key, record))
            # Every reader gets the same winner, in whatever order the lanes were read.
            if (version, lane) > found[:2]:
                found = version, lane, data
        return found[0], found[2]

    def _added(self, key: str) -> tuple[int, dict[str, int | None]]:
        """The newest epoch of a counter, and by lane what was added in it."""
        # Epochs begin with 0, as a counter that was never removed has it.
        newest, by_lane = 0, dict[str, int | None]()
        for lane, record in self._of(COUNTER + key).items():
            epoch, added = cast("tuple[int, int | None]", _decoded(lane, COUNTER + key, record))
            if epoch > newest:
                # A lane that has removed the counter began it; what others added before is gone.
                newest, by_lane = epoch, {}
            if epoch == newest:
                by_lane[lane] = added
        return newest, by_lane

    def _of(self, record_key: str) -> Mapping[str, bytes]:
        """The records of a key, by lane, staged ones included."""
        found = self.records.of(record_key)
        uncounted = self._uncounted.of(record_key)
        staged = self.staged.get(record_key)
        if uncounted:
            found = {**found, **uncounted}
        return found if staged is None else {**found, self.lane: staged}

    # --- changing

    def records_of(self, lane: str, changes: Changes) -> dict[str, bytes]:
        """The records, by their keys, that make these changes when they are written to a lane."""
        records: dict[str, tuple[object, ...]] = {}
        for key, data in changes.values.items():
            version, before = self.value(key)
            # To remove what does not exist needs no record.
            if data is not None or before is not None:
                # Higher than every version that this table has read, so that it counts everywhere.
                records[VALUE + key] = FORMAT, version + 1, data
        for key, change in changes.counters.items():
            epoch, by_lane = self._added(key)
            # A record has the whole sum of its lane in the epoch, not only what is added now.
            added = by_lane.get(lane)
            # All lanes begin anew with a higher epoch: their sums of earlier ones do not count any
            # more.
            if change.is_removed:
                epoch, added = epoch + 1, None
            if change.added is not None:
                added = (added or 0) + change.added
            records[COUNTER + key] = FORMAT, epoch, added
        return {key: cast("bytes", msgpack.packb(record)) for key, record in records.items()}

    def entry_of(self, lane: str, records: Mapping[str, bytes]) -> Entry:
        """The next entry of a lane: ``records``, and the count of the lane behind them.

        The count comes last: a reader that has read it has read all of the entry.
        """
        if lane == REST_LANE:
            return Entry(lane, records, records, LaneSummary())
        after = self._with(lane, records)
        count = cast("bytes", msgpack.packb([FORMAT, after.keys, after.digest]))
        return Entry(lane, records, {**records, COUNT: count}, after)

    def keep(self, entry: Entry, position: tuple[int, int] | None) -> None:
        """Take in an entry that is stored now, at ``position``, which is None if it is not known.

        It must be the last one that ``entry_of`` made for its lane.
        """
        lane, records, after = entry.lane, entry.records, entry.after
        if lane == REST_LANE:
            self._uncounted.write(lane, records, after)
        else:
            # Then an earlier attempt had stored the entry. The old position stays: reading from
            # there once more changes nothing.
            if position is None:
                position = self.records.summaries.get(lane, NO_RECORDS).position
            self.records.write(lane, records, replace(after, position=position))
            self._counts[lane] = after.keys, after.digest
        if lane == self.lane:
            # A key that was changed again since the entry was made stays staged.
            for key, record in records.items():
                # By identity: an equal record that was staged since is another change, to be stored
                # with a later entry.
                if self.staged.get(key) is record:
                    del self.staged[key]

    def _with(
        self, lane: str, records: Mapping[str, bytes], position: tuple[int, int] | None = None
    ) -> LaneSummary:
        """The summary of a lane with these records in place of the older ones of their keys."""
        before = self.records.summaries.get(lane, NO_RECORDS)
        keys, digest = before.keys, before.digest
        # The digest is an exclusive or: the old record is taken out by the same operation that put
        # it in.
        for key, record in records.items():
            old = self.records.record(lane, key)
            if old is None:
                keys += 1
            else:
                digest ^= record_digest(key, old)
            digest ^= record_digest(key, record)
        return LaneSummary(keys, digest, position or before.position)

    # --- reading lanes

    def begin(self, lane: str) -> tuple[int, int] | None:
        """Begin to read a lane anew.

        Returns (ledger id, entry id) of the entry to start from, None for the beginning.
        """
        # The count is read again with the last entry. If the topic is empty by now there will be
        # none, and ``check`` compares with (0, 0).
        self._counts.pop(lane, None)
        self._unfinished.discard(lane)
        return self.records.summaries.get(lane, NO_RECORDS).position

    def take(self, lane: str, read: Iterable[tuple[str, bytes, tuple[int, int]]]) -> None:
        """Take in what was read from a lane: keys, records, and the positions of their entries.

        Records that were taken in before change nothing. Raises ``StateDamaged``.
        """
        new: dict[str, bytes] = {}
        position: tuple[int, int] | None = None
        for key, record, at in read:
            fields = _decoded(lane, key, record)
            # It says only that a writer came.
            if key == MARK:
                continue
            if key == COUNT:
                # Only the end of an entry is a position to start from later.
                self._counts[lane], position = cast("tuple[int, int]", fields), at
                self._unfinished.discard(lane)
            else:
                new[key] = record
                # Until the count that ends its entry is read.
                self._unfinished.add(lane)
        if lane == REST_LANE:
            self._uncounted.write(lane, new, LaneSummary())
        elif new or position is not None:
            self.records.write(lane, new, self._with(lane, new, position))

    def check(self, lane: str, *, is_at_end: bool = True) -> None:
        """Compare the records that are held of a lane with its count. Raises ``StateDamaged``.

        They differ if the topic was trimmed or truncated and no compaction has kept what is gone,
        or if the local copy is of another topic. Within an entry, which the end of a lane never is,
        they cannot be compared.
        """
        if lane == REST_LANE or (lane in self._unfinished and not is_at_end):
            return
        held = self.records.summaries.get(lane, NO_RECORDS)
        keys, digest = self._counts.get(lane, (0, 0))
        if held.keys < keys:
            reason = f"it has {held.keys} of {keys} keys: the topic was trimmed"
        elif (held.keys, held.digest) != (keys, digest):
            reason = f"its {held.keys} keys do not have the values that were counted last"
        else:
            return
        raise StateDamaged(lane, COUNT, reason)

    def forget(self, lane: str) -> None:
        """Forget all records of a lane, so that it is read from its beginning."""
        self.records.drop(lane)
        self._uncounted.drop(lane)
        self.begin(lane)


def _decoded(lane: str, key: str, record: bytes) -> tuple[object, ...] | Commit:
    """Decode a record, by the kind of its key. Raises ``StateDamaged``."""
    try:
        fields = msgpack.unpackb(record)
    except (ValueError, msgpack.UnpackException) as error:
        raise StateDamaged(lane, key, str(error)) from error
    # By the kind of the key and the number of the format: a record of a later format matches
    # nothing, and is refused rather than misread.
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
            decoded: list[Result] = []
            for each in results:
                match each:
                    case [int(sequence_id), dict(properties), bytes(payload)]:
                        decoded.append(
                            Result(sequence_id, cast("dict[str, str]", properties), payload)
                        )
                    case _:
                        raise StateDamaged(lane, COMMIT, f"{each!r} is no result")
            return Commit(position, decoded)
        case _:
            raise StateDamaged(lane, key, f"{fields!r} is no record of format {FORMAT}")
