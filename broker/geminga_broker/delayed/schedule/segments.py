"""How a bucket's messages are cut into segments, which are read one at a time. Pure.

The rules are upstream's: a segment has a limited number of messages, and spans a limited time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.records.topics.delayed_buckets import DelayedIndex, SegmentSummary


def cut(
    pieces: Iterable[list[DelayedIndex]], config: DelayedConfig
) -> Iterator[list[DelayedIndex]]:
    """Cut messages, which come in the order of their times, into segments.

    Yields an empty segment after each piece, so that the caller can give other tasks a turn: a
    bucket may have hundreds of thousands of messages.
    """
    current: list[DelayedIndex] = []
    for piece in pieces:
        for message in piece:
            # Times only grow, so the first message of a segment is its earliest.
            if current and (
                len(current) >= config.segment_messages_max
                or message[0] - current[0][0] >= config.segment_step_ms
            ):
                yield current
                current = []
            current.append(message)
        yield []
    yield current


def summary_of(segment: list[DelayedIndex]) -> SegmentSummary:
    """What the bucket's first entry says of a segment: from when to when it is due, and a bit set
    of its entries for each ledger."""
    by_ledger: dict[int, list[int]] = {}
    for _, ledger_id, entry_id in segment:
        by_ledger.setdefault(ledger_id, []).append(entry_id)
    bits: dict[int, int] = {}
    for ledger_id, entries in by_ledger.items():
        # In a buffer: setting a bit of an integer would copy it each time.
        marks = bytearray(max(entries) // 8 + 1)
        for entry_id in entries:
            marks[entry_id >> 3] |= 1 << (entry_id & 7)
        bits[ledger_id] = int.from_bytes(marks, "little")
    return SegmentSummary(segment[0][0], segment[-1][0], bits)
