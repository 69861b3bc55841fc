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
    c:KEY -> [1, epoch, sum]                 what this lane has added to a counter
    p:    -> [1, position, [[sequence id, properties, payload], ...]]
                                             up to which input the lane tells, in the lane of an
                                             input partition; the results of the last inputs
    n:    -> [1, keys]                       how many keys of the above the lane has by now
    m:    -> [1]                             that a writer has begun

Each entry says how many keys there are, so that a lane which has lost some of them is found out.
REST's lane has several writers, and does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgpack

from geminga_functions.errors import StateDamaged
from geminga_functions.state.changes import Changes

FORMAT = 1
VALUE, COUNTER, COMMIT, COUNT, MARK = "v:", "c:", "p:", "n:", "m:"
MARK_RECORD = cast("bytes", msgpack.packb([FORMAT]))


@dataclass(frozen=True, slots=True)
class Value:
    """The newest record of a value: ``data`` is None where the value was removed."""

    version: int
    lane: str
    data: bytes | None


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


class StateTable:
    """The state as far as it has been read, changes of one's own included."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        # By key and lane: the epoch, and what was added in it.
        self._counters: dict[str, dict[str, tuple[int, int]]] = {}
        # By lane, of those of input partitions.
        self.commits: dict[str, Commit] = {}
        # By lane: the keys of its records, and how many it says that it has.
        self._keys: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}

    # --- reading

    def get(self, key: str) -> bytes | None:
        """The value of a key, None if it has none."""
        value = self._values.get(key)
        return None if value is None else value.data

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        value = self._values.get(key)
        return 0 if value is None else value.version

    def counter(self, key: str) -> int:
        """The value of a counter, 0 if it is not there."""
        epoch = self._epoch(key)
        return sum(added for each, added in self._counters.get(key, {}).values() if each == epoch)

    def has_counter(self, key: str) -> bool:
        """Whether something was ever added to it since it was removed."""
        epoch = self._epoch(key)
        return any(each == epoch and added for each, added in self._counters.get(key, {}).values())

    def _epoch(self, key: str) -> int:
        return max((epoch for epoch, _ in self._counters.get(key, {}).values()), default=0)

    # --- changing

    def records_of(self, lane: str, changes: Changes) -> dict[str, bytes]:
        """The records, by their keys, which make these changes in a lane once they are applied."""
        records: dict[str, tuple[object, ...]] = {}
        for key, data in changes.values.items():
            if data is not None or self.get(key) is not None:
                records[VALUE + key] = FORMAT, self.version(key) + 1, data
        for key, change in changes.counters.items():
            epoch = self._epoch(key)
            own_epoch, added = self._counters.get(key, {}).get(lane, (epoch, 0))
            if change.is_removed:
                epoch, added = epoch + 1, 0
            elif own_epoch != epoch:
                added = 0
            records[COUNTER + key] = FORMAT, epoch, added + change.added
        return {key: cast("bytes", msgpack.packb(record)) for key, record in records.items()}

    def counted(self, lane: str, records: Mapping[str, bytes]) -> dict[str, bytes]:
        """``records``, applied or not, which are stored next, with how many keys the lane has then.

        It stands behind them: who has read it has read all of the entry.
        """
        keys = self._keys.get(lane, set())
        count = len(keys) + sum(key not in keys for key in records)
        return {**records, COUNT: cast("bytes", msgpack.packb([FORMAT, count]))}

    # --- what lanes say

    def check(self, lane: str) -> None:
        """Raise ``StateDamaged`` where a lane that was read to its end has lost something: it was
        trimmed or truncated, and no compaction has kept what went."""
        said, found = self._counts.get(lane, 0), len(self._keys.get(lane, ()))
        if found < said:
            raise StateDamaged(lane, COUNT, f"it has {found} of {said} keys: the topic was trimmed")

    def apply(self, lane: str, key: str, record: bytes) -> None:
        """Take in a record of a lane. One that was taken in before changes nothing. Raises
        ``StateDamaged``."""
        kind, name = key[:2], key[2:]
        try:
            fields = msgpack.unpackb(record)
        except (ValueError, msgpack.UnpackException) as error:
            raise StateDamaged(lane, key, str(error)) from error
        match kind, fields:
            case "v:", [1, int(version), bytes() | None as data]:
                new = Value(version, lane, data)
                old = self._values.get(name)
                if old is None or (old.version, old.lane) < (new.version, new.lane):
                    self._values[name] = new
            case "c:", [1, int(epoch), int(added)]:
                self._counters.setdefault(name, {})[lane] = (epoch, added)
            case "n:", [1, int(keys)]:
                self._counts[lane] = keys
                return
            case "m:", [1]:
                return
            case "p:", [1, int(position), list(results)]:
                self.commits[lane] = Commit(position, _results(lane, results))
            case _:
                raise StateDamaged(lane, key, f"{fields!r} is no record of format {FORMAT}")
        self._keys.setdefault(lane, set()).add(key)


def _results(lane: str, fields: Sequence[object]) -> Sequence[Result]:
    results: list[Result] = []
    for each in fields:
        match each:
            case [int(sequence_id), dict(properties), bytes(payload)]:
                results.append(Result(sequence_id, cast("dict[str, str]", properties), payload))
            case _:
                raise StateDamaged(lane, COMMIT, f"{each!r} is no result")
    return results
