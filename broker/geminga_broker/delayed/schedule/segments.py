"""How a bucket's messages are cut into segments. Pure; the rules are upstream's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geminga_broker.policies.delayed import DelayedConfig
from geminga_protocol.records.delayed_buckets import DelayedIndex, SegmentSummary


def cut(
    pieces: Iterable[list[DelayedIndex]], config: DelayedConfig
) -> Iterator[list[DelayedIndex]]:
    """The segments of messages that come in the order of their times; an empty one between two
    pieces, where others may have a turn."""
    current: list[DelayedIndex] = []
    for piece in pieces:
        for message in piece:
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
    """What the bucket's first entry says of a segment."""
    by_ledger: dict[int, list[int]] = {}
    for _, ledger_id, entry_id in segment:
        by_ledger.setdefault(ledger_id, []).append(entry_id)
    return SegmentSummary(
        segment[0][0],
        segment[-1][0],
        {ledger_id: _bit_set(entries) for ledger_id, entries in by_ledger.items()},
    )


def _bit_set(entries: list[int]) -> int:
    """Bits are set in a buffer: one at a time into an integer would copy it each time."""
    marks = bytearray(max(entries) // 8 + 1)
    for entry_id in entries:
        marks[entry_id >> 3] |= 1 << (entry_id & 7)
    return int.from_bytes(marks, "little")
