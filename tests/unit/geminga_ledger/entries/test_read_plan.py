"""Proves that a reader asks for each entry once, for few bytes at a time, whatever sizes they have.

The plan is played against a ledger that is nothing but sizes: what a reader would hold and read at
each step is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_ledger.entry_sizes import KIB, MIB, mixes

from geminga_ledger.entries.read_plan import BLIND_ENTRIES_MAX, SURE_BYTES_MAX, ReadPlan

GIB = 1024 * MIB
WINDOW = MIB
ENTRY_BYTES_MAX = 5 * MIB
IN_FLIGHT_MAX = 256
# What is asked for at once: what is sure, the end of the next window, and that many blindly.
AT_ONCE_BYTES_MAX = SURE_BYTES_MAX + (BLIND_ENTRIES_MAX + 1) * ENTRY_BYTES_MAX


@dataclass
class Game:
    """One reader of a ledger whose entries have these sizes."""

    sizes: Sequence[int]
    plan: ReadPlan = field(default_factory=lambda: ReadPlan(IN_FLIGHT_MAX))
    asked: list[int] = field(default_factory=list)
    questions: int = 0
    at_once_bytes: int = 0
    kept_bytes: int = 0

    def read(self, wanted: Sequence[int], window: int = WINDOW) -> None:
        """Give out all that is wanted, a window at a time, as ``LedgerReader`` does."""
        lengths = list(accumulate(self.sizes))
        kept: set[int] = set()
        given, room = 0, window
        while given < len(wanted):
            size = self.sizes[wanted[given]]
            if wanted[given] in kept and (size <= room or room == window):
                kept.discard(wanted[given])
                given, room = given + 1, room - size
                continue
            if wanted[given] in kept or room < window // 4:
                self.kept_bytes = max(self.kept_bytes, sum(self.sizes[each] for each in kept))
                room = window
                continue
            ids = self.plan.next_ids(wanted[given:], room, window)
            assert ids[0] == wanted[given]
            assert set(ids) <= set(wanted)
            assert ids == sorted(set(ids))
            ids = [each for each in ids if each not in kept]
            for each in {ids[0], *ids[-2:]}:
                self.plan.note_length(each, lengths[each])
            near = ids[:-1] or ids
            self.plan.note_sizes(len(near), sum(self.sizes[each] for each in near))
            self.questions += 1
            self.asked += ids
            self.at_once_bytes = max(self.at_once_bytes, sum(self.sizes[each] for each in ids))
            kept.update(ids)


@given(mixes(GIB))
def test_every_entry_is_asked_for_once_at_any_mix_of_sizes(sizes: list[int]) -> None:
    game = Game(sizes)
    game.read(range(len(sizes)))
    assert sorted(game.asked) == list(range(len(sizes)))
    assert game.at_once_bytes <= AT_ONCE_BYTES_MAX
    assert game.kept_bytes <= AT_ONCE_BYTES_MAX


@given(mixes(GIB), st.data())
def test_entries_with_gaps_between_them_are_asked_for_alone(
    sizes: list[int], data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=len(sizes)))
    wanted = [each for each in accumulate(steps) if each < len(sizes)]
    game = Game(sizes)
    game.read(wanted)
    assert sorted(game.asked) == wanted
    assert game.at_once_bytes <= AT_ONCE_BYTES_MAX


@pytest.mark.parametrize(
    ("pattern", "entries"),
    [
        ([50, 60 * KIB], 4_000),
        ([200 * KIB, MIB + 2_000], 200),
        ([100] * 999 + [5 * MIB], 20_000),
        ([5 * MIB] * 9 + [100], 60),
    ],
    ids=["small and large", "batches of a MiB", "rarely huge", "rarely small"],
)
def test_what_is_asked_for_at_once_is_about_what_is_given_out(
    pattern: list[int], entries: int
) -> None:
    game = Game((pattern * entries)[:entries])
    game.plan.note_end(entries - 1, sum(game.sizes))
    game.read(range(entries))
    assert game.at_once_bytes <= max(SURE_BYTES_MAX, 2 * max(pattern))
    windows = sum(game.sizes) // WINDOW + entries // IN_FLIGHT_MAX
    assert game.questions <= 2 * windows


def test_equal_entries_are_asked_for_by_whole_windows() -> None:
    game = Game([10 * KIB] * 5_000)
    game.read(range(5_000))
    assert game.questions <= 1.25 * 5_000 * 10 * KIB / WINDOW


def test_a_huge_stretch_after_a_small_one_is_met_by_one_entry() -> None:
    sizes = [100] * 10_000 + [5 * MIB] * 300
    game = Game(sizes)
    game.read(range(9_000))
    game.at_once_bytes = 0
    game.read(range(9_000, 10_300))
    # The whole next window would have been 1.2 GiB.
    assert game.at_once_bytes <= SURE_BYTES_MAX + 8 * MIB


def test_the_last_entry_of_a_closed_ledger_bounds_what_is_asked_for_first() -> None:
    known, unknown = ReadPlan(IN_FLIGHT_MAX), ReadPlan(IN_FLIGHT_MAX)
    known.note_end(99, 99_000)
    unknown.note_end(99, 0)
    assert known.next_ids(range(100), WINDOW, WINDOW) == list(range(100))
    assert len(unknown.next_ids(range(100), WINDOW, WINDOW)) == BLIND_ENTRIES_MAX + 1


def test_a_single_entry_is_asked_for_alone() -> None:
    plan = ReadPlan(IN_FLIGHT_MAX)
    plan.note_end(99, 9_900)
    assert plan.next_ids(range(7, 8), WINDOW, WINDOW) == [7]
    assert plan.next_ids([3], 1, 1) == [3]


def test_lengths_that_cannot_be_true_do_no_harm() -> None:
    plan = ReadPlan(IN_FLIGHT_MAX)
    plan.note_length(10, 1_000_000)
    plan.note_length(200, 3)
    ids = plan.next_ids(range(11, 1_000), WINDOW, WINDOW)
    assert ids[0] == 11
    assert len(ids) <= IN_FLIGHT_MAX + 1
