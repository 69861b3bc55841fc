"""Where entries begin and end, and how their messages are numbered. Pure.

A task that runs again stores the same messages in the same entries with the same sequence ids: a
topic that deduplicates then drops those that it has. It compares the first sequence id of an entry
and drops the entry as a whole, hence two rules. Entries are cut by rows and bytes, never by time.
And no entry contains both rows that the topic has and new ones, even where limits were changed
between two attempts: it ends at the last sequence id that the topic knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from pyspark_geminga.sink.options import Cut

# A sequence id has the number of the micro-batch (epoch) above that of the row:
# +-------+--------------------+------------------------------------+
# | 0     | epoch              | ordinal of the row among those     |
# | 1 bit | 31 bits            | of its task and topic, 32 bits     |
# +-------+--------------------+------------------------------------+
ORDINAL_BITS = 32
ORDINALS = 1 << ORDINAL_BITS
EPOCHS = 1 << 31
# What a message takes in an entry beyond its payload and attributes, at most: the size of its
# metadata (4 bytes), payload size (1 + 5) and sequence id (1 + 10).
MESSAGE_OVERHEAD_BYTES = 21


def first_sequence_id(epoch: int) -> int:
    """The sequence id of the first row of an epoch."""
    assert 0 <= epoch < EPOCHS
    return epoch << ORDINAL_BITS


def cut_entries(sizes: Sequence[int], cut: Cut, boundary: int | None = None) -> list[int]:
    """Where entries of rows end: for each entry the index behind its last row, ascending.

    ``sizes`` are the bytes of rows that are in no entry yet. The rows behind the last index are an
    incomplete entry, to which rows that follow may belong. A row larger than the limit is alone in
    its entry. An entry ends at ``boundary``, if that is among the rows.
    """
    totals = list(accumulate(sizes, initial=0))
    rows = len(sizes)
    ends: list[int] = []
    start = 0
    while start < rows:
        # Behind the last row that still fits by bytes; ``start`` itself if the first is too large.
        by_bytes = bisect_right(totals, totals[start] + cut.bytes_max, start) - 1
        end = max(start + 1, min(start + cut.rows_max, by_bytes))
        if boundary is not None and start < boundary < end:
            end = boundary
        # An entry is complete if a limit or the boundary ended it, and not the end of the rows.
        is_complete = (
            end < rows
            or end - start >= cut.rows_max
            or totals[end] - totals[start] >= cut.bytes_max
        )
        if not is_complete:
            break
        ends.append(end)
        start = end
    return ends
