"""Splits: how ranges of topics are cut into parts that Spark's tasks read in parallel.

Ranges are cut between entries, and each part is read in order: the parts of a range, one after the
other, are the range. A task costs about 60 ms of a core, as much as 15 MB take to be read: parts
are large, unless users want more of them.

Users may bound the records of a part as well (``RecordCuts``). Only an entry itself tells how many
records it has, so each entry is read; ranges are cut there first, and the pieces between these cuts
by their size.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from geminga import LogPosition
from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.log_layout import Segment, total_bytes, total_entries

# A bound for the memory of Spark's driver, which holds each split and schedules it as a task.
SPLITS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SplitRules:
    """How large splits are, and how many there are."""

    target_bytes: int  # a larger split is cut again
    # Bounds of the number of splits of all ranges together; each range has one at least.
    splits_min: int = 1
    splits_max: int = SPLITS_MAX
    records_max: int | None = None  # of a split, unless one entry alone has more

    def spared(self, factor: int) -> SplitRules:
        """The same rules with splits that are ``factor`` times as large."""
        return replace(self, target_bytes=self.target_bytes * factor)


@dataclass(eq=False, slots=True)
class RecordCuts:
    """Where to cut one range for ``records_max``: the entries of the range are added in their
    order, each with the records that it makes and the position behind it.

    What has no records (markers, all chunks of a message but the last) stays with what comes before
    it. Raises ``InvalidOption`` when the range alone has more parts than there may be, so that what
    is kept of a range is bounded.
    """

    _rules: SplitRules  # with a ``records_max``
    _records: int = 0  # of the last part
    _behind: LogPosition | None = None  # behind the entry that was added last
    cuts: list[LogPosition] = field(default_factory=list[LogPosition])

    def add(self, records: int, behind: LogPosition) -> None:
        """Add the next entry; cut before it if the part would have too many records with it."""
        assert self._rules.records_max is not None
        is_too_much = self._records + records > self._rules.records_max
        if is_too_much and records and self._records and self._behind is not None:
            self.cuts.append(self._behind)
            self._records = 0
            _check_count(len(self.cuts) + 1, self._rules.splits_max)
        self._records += records
        self._behind = behind


def _check_count(splits: int, splits_max: int) -> None:
    if splits > splits_max:
        raise InvalidOption(
            "maxRecordsPerPartition",
            f"makes more than maxPartitions={splits_max} splits: set one of them higher, or read "
            "less at once",
        )


# A range: first the cuts that records ask for (r), then those by size (s) in the pieces between:
#
#   start |-----s-----r---------s---------s---------r----| end
def plan_cuts(
    ranges: Mapping[str, Sequence[Segment]],
    rules: SplitRules,
    by_records: Mapping[str, Sequence[LogPosition]] | None = None,
) -> dict[str, tuple[LogPosition, ...]]:
    """Where to cut each range: positions strictly inside it, in order; none for a whole one.

    ``by_records`` are cuts that have to be (``RecordCuts``). Of the pieces between them always the
    one with the largest parts gets another part, until parts are as small and as many as the rules
    say. A part is an entry at least. Raises ``InvalidOption`` if there have to be too many parts.
    """
    cuts = {topic: set((by_records or {}).get(topic, ())) for topic in ranges}
    total = len(ranges) + sum(map(len, cuts.values()))
    if total > len(ranges):
        _check_count(total, rules.splits_max)
    pieces = {
        (topic, number): piece
        for topic, segments in ranges.items()
        for number, piece in enumerate(_pieces(segments, sorted(cuts[topic])))
    }
    # How many parts each piece gets. No piece gets more than it has entries: those of one entry
    # never enter the heap, others leave it when each entry is a part.
    counts = dict.fromkeys(pieces, 1)
    sizes = {name: total_bytes(segments) for name, segments in pieces.items()}
    entries = {name: total_entries(segments) for name, segments in pieces.items()}
    # Largest part first; by name where they are equal, so that planning again gives the same.
    largest = [(-sizes[name], name) for name in pieces if entries[name] > 1]
    heapq.heapify(largest)
    while largest and total < rules.splits_max:
        # Each step splits the piece whose parts are the largest at this moment: the result is as
        # even as whole entries allow, after at most ``splits_max`` steps.
        negative_size, name = largest[0]
        if -negative_size <= rules.target_bytes and total >= rules.splits_min:
            break  # the largest part is small enough, so all are
        counts[name] += 1
        total += 1
        if counts[name] < entries[name]:
            heapq.heapreplace(largest, (-(sizes[name] // counts[name]), name))
        else:
            heapq.heappop(largest)
    for (topic, number), count in counts.items():
        cuts[topic].update(_cuts(pieces[topic, number], count))
    return {topic: tuple(sorted(found)) for topic, found in cuts.items() if found}


def _pieces(segments: Sequence[Segment], cuts: Sequence[LogPosition]) -> list[list[Segment]]:
    """What lies between the cuts, one more than these; bytes are shared by numbers of entries."""
    # The last list is the piece that is being filled; a cut begins another one.
    pieces: list[list[Segment]] = [[]]
    left = deque(cuts)
    for segment in segments:
        first, behind = segment.first_entry, segment.first_entry + segment.entries
        while first < behind:
            # Also a cut behind the last entry of the ledger before ends a piece here.
            while left and left[0] <= LogPosition(segment.ledger_id, first):
                left.popleft()
                pieces.append([])
            is_cut = bool(left) and left[0] < LogPosition(segment.ledger_id, behind)
            until = left[0].entry_id if is_cut else behind
            size_bytes = segment.size_bytes * (until - first) // segment.entries
            pieces[-1].append(Segment(segment.ledger_id, first, until - first, size_bytes))
            first = until
    # Cuts behind everything that is stored: the pieces between them are empty.
    return pieces + [[] for _ in left]


def _cuts(segments: Sequence[Segment], parts: int) -> tuple[LogPosition, ...]:
    """Cut into parts of about the same bytes, each of an entry at least."""
    # The entries and bytes up to the end of each segment.
    entries = list(accumulate(segment.entries for segment in segments))
    sizes = list(accumulate(segment.size_bytes for segment in segments))
    cuts: list[LogPosition] = []
    cut_before = 0
    for part in range(1, parts):
        # Of the whole, not from the cut before: rounding does not add up.
        wanted = sizes[-1] * part // parts  # bytes before this cut
        number = min(bisect_left(sizes, wanted), len(segments) - 1)
        segment = segments[number]
        inside = (wanted - (sizes[number] - segment.size_bytes)) // segment.entry_bytes
        behind = entries[number] - segment.entries + min(inside, segment.entries)
        # An entry at least for this part, and for each part that follows.
        cut_before = min(max(behind, cut_before + 1), entries[-1] - (parts - part))
        # The segment that has the last entry before the cut: the bounds may have moved it.
        number = bisect_left(entries, cut_before)
        segment = segments[number]
        cuts.append(segment.at(cut_before - (entries[number] - segment.entries)))
    return tuple(cuts)


def parts_of(
    start: LogPosition, end: LogPosition, cuts: Sequence[LogPosition]
) -> list[tuple[LogPosition, LogPosition]]:
    """The parts from ``start`` to ``end``, half-open; none where there is nothing between."""
    # Cuts come from the checkpoint, and the start may have moved behind some of them since.
    inside = [cut for cut in cuts if start < cut < end]
    edges = [start, *inside, end]
    return [(first, behind) for first, behind in pairwise(edges) if first < behind]
