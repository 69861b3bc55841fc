"""What a cursor stores, as one value: taken from memory, put into records, read from them. Pure.

A cursor that moves appends a ``PositionInfo`` to its ledger; at rest it is a ``ManagedCursorInfo``
in ZooKeeper. A few ranges are written as ranges, which either record holds. Many are written as bit
sets, which only ``PositionInfo`` has, and which Apache Pulsar 4.0 reads whatever its own
``managedLedgerPersistIndividualAckAsLongArray`` says (``ManagedCursorImpl``,
``recoverIndividualDeletedMessages``).

One entry of a ledger and one node of ZooKeeper have their limits. What goes beyond them is left out
from the end: those acknowledgements live in memory alone, and after a crash their messages are
delivered again. Upstream does the same, beyond 10,000 ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from geminga_broker.managed_ledger.acknowledgement.acknowledged import (
    Acknowledged,
    PositionRange,
    Words,
)
from geminga_broker.managed_ledger.positions import Position
from geminga_protocol.records.encodings.bit_sets import bits_of_words, words_of_bits
from geminga_protocol.records.topics.cursor import NO_CURSOR_LEDGER, CursorRecord, PositionRecord

# How large the two parts of a PositionInfo that grow may be: together with the rest they stay below
# the 5 MiB that a bookie takes as one entry. As bits, that is room for 18 million entries.
BITS_BYTES_MAX = 3 * 1024 * 1024
BATCHES_BYTES_MAX = 1024 * 1024
# A node of ZooKeeper holds 1 MiB; a cursor takes no more than a quarter of it.
SNAPSHOT_BYTES_MAX = 256 * 1024

# Upstream's mark of a subscription that other clusters keep alike (``PersistentSubscription``).
REPLICATED_PROPERTY = "pulsar.replicated.subscription"

# The most that protobuf needs: a word is a tag and a varint; around the words of one ledger or
# batch stand a few tags, lengths, and one or two ids.
WORD_BYTES = 11
GROUP_BYTES = 40
# A varint of 64 bits fills ten of the eleven bytes.
WORD_BITS = 64

# Empty mappings that all states share: a broker keeps very many cursors, most without properties.
NO_BITS: Mapping[int, int] = MappingProxyType({})
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
NO_TEXTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CursorState:
    """All that is stored of a cursor."""

    mark_delete: Position
    # What is acknowledged beyond ``mark_delete``: as ranges or, where there are many, as a bit set
    # of entry ids for each ledger. Never as both.
    ranges: tuple[PositionRange, ...] = ()
    bits: Mapping[int, int] = field(default_factory=lambda: NO_BITS)
    # Batches acknowledged in part, with the bit sets of the messages still to be consumed.
    partial: tuple[tuple[Position, Words], ...] = ()
    # Numbers that hold for ``mark_delete`` and are written with it: the compacted ledger, sequence
    # ids, redelivery counts, the mark of a replicated subscription.
    position_properties: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    # What users and the delayed delivery keep with the subscription. These stand in ZooKeeper only.
    cursor_properties: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)


@dataclass(frozen=True, slots=True)
class StateLimits:
    """How much of a cursor is written."""

    # More ranges become bits.
    ranges_max: int = 1000
    # Of batches acknowledged in part so many are kept, those with the least positions.
    batches_max: int = 10_000
    bits_bytes_max: int = BITS_BYTES_MAX
    batches_bytes_max: int = BATCHES_BYTES_MAX


def state_of(
    acknowledged: Acknowledged,
    limits: StateLimits,
    *,
    position_properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
) -> tuple[CursorState, int]:
    """What to write of ``acknowledged``, and how many entries and batches that leaves out."""
    # One more than the limit shows that there are more: counting millions would take its time.
    ranges = tuple(islice(acknowledged.ranges(), limits.ranges_max + 1))
    bits: dict[int, int] = {}
    left_out = 0
    if len(ranges) > limits.ranges_max:
        # All or none as bits: upstream reads the bit sets only where the record has no range.
        ranges = ()
        bits = _bits_within(acknowledged.bits(), limits.bits_bytes_max)
        left_out = acknowledged.ahead_count - sum(each.bit_count() for each in bits.values())
    batches = sorted(acknowledged.partial_entries.items())
    partial = _batches_within(batches, limits.batches_max, limits.batches_bytes_max)
    state = CursorState(
        mark_delete=acknowledged.mark_delete,
        ranges=ranges,
        bits=bits,
        partial=partial,
        position_properties=position_properties,
        cursor_properties=cursor_properties,
    )
    return state, left_out + len(batches) - len(partial)


def _bits_within(bits: Mapping[int, int], bytes_max: int) -> dict[int, int]:
    """The first of ``bits`` that fit; the set that crosses the limit is cut at a word."""
    kept: dict[int, int] = {}
    for ledger_id, members in sorted(bits.items()):
        # By the worst case of each word: an encoded set may be smaller, never larger than what is
        # counted.
        words_max = max(0, bytes_max - GROUP_BYTES) // WORD_BYTES
        words = -(-members.bit_length() // WORD_BITS)
        fitting = members if words <= words_max else members & ((1 << words_max * WORD_BITS) - 1)
        # From the end, so that what is kept joins the mark: it is what consumers reach first.
        if not fitting:
            break
        kept[ledger_id] = fitting
        # Below 0 after a set that was cut: nothing fits any more, and the loop ends.
        bytes_max -= GROUP_BYTES + words * WORD_BYTES
    return kept


def _batches_within(
    batches: Iterable[tuple[Position, Words]], count_max: int, bytes_max: int
) -> tuple[tuple[Position, Words], ...]:
    kept: list[tuple[Position, Words]] = []
    for position, words in islice(batches, count_max):
        # The ones left out are those with the greatest positions: consumers reach them last.
        bytes_max -= GROUP_BYTES + len(words) * WORD_BYTES
        if bytes_max < 0:
            break
        kept.append((position, words))
    return tuple(kept)


def position_record(state: CursorState) -> PositionRecord:
    """What is appended to the cursor ledger."""
    return PositionRecord(
        mark_delete=state.mark_delete,
        acknowledged=state.ranges,
        properties=state.position_properties,
        partial_batches=dict(state.partial),
        acknowledged_bits={each: words_of_bits(bits) for each, bits in state.bits.items()},
    )


def naming_record(state: CursorState, ledger_id: int, *, last_active_ms: int) -> CursorRecord:
    """What stands in ZooKeeper while the last entry of ``ledger_id`` is the cursor."""
    return CursorRecord(
        cursor_ledger_id=ledger_id,
        mark_delete=state.mark_delete,
        last_active_ms=last_active_ms,
        cursor_properties=state.cursor_properties,
    )


def snapshot(state: CursorState, *, last_active_ms: int) -> bytes | None:
    """The node that is the whole cursor; None where the state is too large for one."""
    if state.bits:
        return None  # ManagedCursorInfo has no field for them
    record = replace(
        naming_record(state, NO_CURSOR_LEDGER, last_active_ms=last_active_ms),
        acknowledged=state.ranges,
        properties=state.position_properties,
        partial_batches=dict(state.partial),
    )
    # Measured, not estimated: properties of users are in it, of any size.
    value = record.encode()
    return value if len(value) <= SNAPSHOT_BYTES_MAX else None


def state_from(record: CursorRecord, written: PositionRecord | None) -> CursorState:
    """The state in ``record`` and in ``written``, the last entry of the ledger that it names."""
    source = record if written is None else written
    # Bit sets count only where there are no ranges (``ManagedCursorImpl``).
    bits = NO_BITS
    if written is not None and not written.acknowledged:
        bits = {each: bits_of_words(words) for each, words in written.acknowledged_bits.items()}
    return CursorState(
        # Without a position, everything is delivered again.
        mark_delete=Position(*(source.mark_delete or (-1, -1))),
        ranges=tuple((Position(*low), Position(*high)) for low, high in source.acknowledged),
        bits=bits,
        partial=tuple((Position(*at), words) for at, words in source.partial_batches.items()),
        position_properties=source.properties or NO_NUMBERS,
        cursor_properties=record.cursor_properties or NO_TEXTS,
    )
