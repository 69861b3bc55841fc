"""Lists of entries say who lacks what, as one would find by looking for every single copy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_autorecovery.decisions.fragments import LedgerFragment, belongs_on
from geminga_autorecovery.decisions.replicas import Replicas, replicas_of
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper.availability import Run, runs_of

QUORUM = Quorum(3, 2, 2)
FRAGMENT = LedgerFragment(10, 30, ("a", "b", "c"))
EVERYTHING = {each: [Run(0, 99)] for each in "abc"}


def test_where_all_copies_are_there_no_bookie_lacks_any() -> None:
    assert replicas_of(FRAGMENT, QUORUM, EVERYTHING, 10, 30) == Replicas(frozenset(), 2)


def test_what_does_not_belong_on_a_bookie_is_not_missed() -> None:
    lists = {
        bookie: runs_of(each for each in range(10, 31) if belongs_on(QUORUM, each, index))
        for index, bookie in enumerate("abc")
    }
    assert replicas_of(FRAGMENT, QUORUM, lists, 10, 30) == Replicas(frozenset(), 2)


def test_a_bookie_without_a_list_lacks_nothing_and_counts_for_no_copy() -> None:
    lists = {"a": None, "b": EVERYTHING["b"]}
    assert replicas_of(FRAGMENT, QUORUM, lists, 10, 30) == Replicas(frozenset(), 0)
    assert replicas_of(FRAGMENT, QUORUM, {**EVERYTHING, "a": None}, 10, 30).fewest == 1


@given(st.lists(st.sets(st.integers(5, 35)), min_size=3, max_size=3))
def test_it_is_what_looking_for_each_copy_finds(held: list[set[int]]) -> None:
    lists = {bookie: runs_of(sorted(ids)) for bookie, ids in zip("abc", held, strict=True)}
    copies = dict.fromkeys(range(10, 31), 0)
    lacking: set[str] = set()
    for entry_id in copies:
        for index in QUORUM.write_set(entry_id):
            if entry_id in held[index]:
                copies[entry_id] += 1
            else:
                lacking.add("abc"[index])
    whole = Replicas(frozenset(lacking), min(copies.values()))
    assert replicas_of(FRAGMENT, QUORUM, lists, 10, 30) == whole
    halves = (replicas_of(FRAGMENT, QUORUM, lists, *each) for each in ((10, 17), (18, 30)))
    assert next(halves).joined(next(halves)) == whole
