"""Splits: how ranges of topics are cut into parts that Spark's tasks read beside each other.

Ranges are cut between entries, and each part is read in order: the parts of a range, one after the
other, are the range. A task costs about 60 ms of a core, as much as 15 MB take to be read: parts
are large, unless users want more of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from geminga import LogPosition
from pyspark_geminga.log_layout import Segment, total_bytes, total_entries

# Spark's driver holds each split, and schedules it as a task.
SPLITS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class SplitRules:
    """``target_bytes`` is the size of a split; so many are made at least, and at most, of all
    ranges together, but not less than one of each."""

    target_bytes: int
    splits_min: int = 1
    splits_max: int = SPLITS_MAX

    def spared(self, factor: int) -> SplitRules:
        """The rules with splits that may be larger."""
        return SplitRules(self.target_bytes * factor, self.splits_min, self.splits_max)


def plan_cuts(
    ranges: Mapping[str, Sequence[Segment]], rules: SplitRules
) -> dict[str, tuple[LogPosition, ...]]:
    """Where to cut each range: positions strictly inside it, in order; none for a whole one.

    Always the range with the largest parts gets another one, until parts are as small and as many
    as the rules say. A part is an entry at least.
    """
    counts = dict.fromkeys(ranges, 1)
    sizes = {topic: total_bytes(segments) for topic, segments in ranges.items()}
    entries = {topic: total_entries(segments) for topic, segments in ranges.items()}
    # Largest part first; by name where they are equal, so that planning again gives the same.
    largest = [(-sizes[topic], topic) for topic in ranges if entries[topic] > 1]
    heapq.heapify(largest)
    total = len(counts)
    while largest and total < rules.splits_max:
        negative_size, topic = largest[0]
        if -negative_size <= rules.target_bytes and total >= rules.splits_min:
            break
        counts[topic] += 1
        total += 1
        if counts[topic] < entries[topic]:
            heapq.heapreplace(largest, (-(sizes[topic] // counts[topic]), topic))
        else:
            heapq.heappop(largest)
    return {topic: _cuts(ranges[topic], count) for topic, count in counts.items() if count > 1}


def _cuts(segments: Sequence[Segment], parts: int) -> tuple[LogPosition, ...]:
    """Cut into parts of about the same bytes, each of an entry at least."""
    # Behind each segment: how many entries, and how many bytes, there were until then.
    entries = list(accumulate(segment.entries for segment in segments))
    sizes = list(accumulate(segment.size_bytes for segment in segments))
    cuts: list[LogPosition] = []
    cut_before = 0
    for part in range(1, parts):
        wanted = sizes[-1] * part // parts
        number = min(bisect_left(sizes, wanted), len(segments) - 1)
        segment = segments[number]
        inside = (wanted - (sizes[number] - segment.size_bytes)) // segment.entry_bytes
        behind = entries[number] - segment.entries + min(inside, segment.entries)
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
    inside = [cut for cut in cuts if start < cut < end]
    edges = [start, *inside, end]
    return [(first, behind) for first, behind in pairwise(edges) if first < behind]
