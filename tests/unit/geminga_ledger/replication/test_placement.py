"""Ensembles have different bookies, on different racks where there are enough; replacements too."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_ledger.errors import NotEnoughBookies
from geminga_ledger.replication.placement import Candidate, choose_ensemble, choose_replacements
from geminga_ledger.replication.quorum import Quorum

NAMES = [f"b{number}" for number in range(6)]
candidate_lists = st.lists(
    st.builds(Candidate, st.sampled_from(NAMES), st.booleans(), st.booleans()),
    unique_by=lambda each: each.bookie_id,
)
rack_maps = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["/r0", "/r1", "/r2"]))


def up(*names: str) -> list[Candidate]:
    return [Candidate(name) for name in names]


@st.composite
def quorums(draw: st.DrawFn) -> Quorum:
    size = draw(st.integers(1, 6))
    return Quorum(size, draw(st.integers(1, size)), 1)


@given(candidate_lists, quorums(), rack_maps, st.frozensets(st.sampled_from(NAMES[:3])))
def test_an_ensemble_has_the_size_wanted_or_there_is_none(
    candidates: list[Candidate], quorum: Quorum, racks: dict[str, str], avoid: frozenset[str]
) -> None:
    usable = {each.bookie_id for each in candidates} - avoid
    size = quorum.ensemble_size
    if len(usable) < size:
        with pytest.raises(NotEnoughBookies) as caught:
            choose_ensemble(candidates, quorum, racks, avoid=avoid)
        assert (caught.value.wanted, caught.value.available) == (size, len(usable))
    else:
        ensemble = choose_ensemble(candidates, quorum, racks, avoid=avoid)
        assert len(set(ensemble)) == len(ensemble) == size
        assert set(ensemble) <= usable


@settings(max_examples=150)
@given(st.permutations(NAMES), st.integers(1, 5), st.data())
def test_no_choice_has_more_racks_where_every_bookie_has_every_entry(
    names: list[str], size: int, data: st.DataObject
) -> None:
    racks = data.draw(rack_maps)
    ensemble = choose_ensemble(up(*names), Quorum(size, size, 1), racks)

    def racks_of(chosen: tuple[str, ...]) -> int:
        return len({racks.get(name, "") for name in chosen})

    assert racks_of(ensemble) == max(map(racks_of, permutations(names, size)))


def test_the_order_of_the_candidates_decides_among_equals() -> None:
    assert choose_ensemble(up("c", "a", "b"), Quorum(2, 2, 2)) == ("c", "a")


def test_bookies_that_are_down_or_in_quarantine_are_taken_only_when_there_is_no_other() -> None:
    candidates = [
        Candidate("a", is_down=True),
        Candidate("b", is_quarantined=True),
        Candidate("c"),
    ]
    assert choose_ensemble(candidates, Quorum(1, 1, 1)) == ("c",)
    assert choose_ensemble(candidates, Quorum(2, 2, 1)) == ("c", "b")
    assert choose_ensemble(candidates, Quorum(3, 3, 1)) == ("c", "b", "a")


def test_the_copies_of_an_entry_stand_in_different_racks() -> None:
    racks = {"a": "/r1", "b": "/r1", "c": "/r2"}
    assert choose_ensemble(up("a", "b", "c"), Quorum(2, 2, 2), racks) == ("a", "c")


def test_neighbours_around_the_ring_stand_in_different_racks() -> None:
    racks = {"a": "/r1", "b": "/r1", "c": "/r2", "d": "/r2"}
    assert choose_ensemble(up("a", "b", "c", "d"), Quorum(4, 2, 2), racks) == ("a", "c", "b", "d")


def test_one_rack_for_all_is_better_than_no_ledger() -> None:
    racks = dict.fromkeys("abc", "/r1")
    assert set(choose_ensemble(up("a", "b", "c"), Quorum(3, 3, 2), racks)) == {"a", "b", "c"}


def test_a_bookie_without_a_rack_stands_in_the_default_rack() -> None:
    racks = {"c": "/r1"}
    assert choose_ensemble(up("a", "b", "c"), Quorum(2, 2, 2), racks) == ("a", "c")


@given(
    candidate_lists,
    st.permutations(NAMES),
    quorums(),
    rack_maps,
    st.frozensets(st.integers(0, 5)),
)
def test_replacements_are_up_new_and_different(
    candidates: list[Candidate],
    names: list[str],
    quorum: Quorum,
    racks: dict[str, str],
    slots: frozenset[int],
) -> None:
    ensemble = tuple(names[: quorum.ensemble_size])
    failed = [slot for slot in slots if slot < quorum.ensemble_size]
    chosen = choose_replacements(candidates, ensemble, failed, quorum, racks)
    usable = {each.bookie_id for each in candidates if not each.is_down} - set(ensemble)
    assert set(chosen.values()) <= usable
    assert set(chosen) <= set(failed)
    assert len(set(chosen.values())) == len(chosen) == min(len(failed), len(usable))


def test_a_replacement_comes_from_the_rack_that_no_other_bookie_of_the_ensemble_is_in() -> None:
    racks = {"a": "/r1", "b": "/r2", "c": "/r2", "d": "/r1"}
    candidates = up("c", "d", "b")
    assert choose_replacements(candidates, ("a", "b"), [0], Quorum(2, 2, 2), racks) == {0: "d"}


def test_a_quarantined_bookie_replaces_only_when_there_is_no_other() -> None:
    quarantined = Candidate("c", is_quarantined=True)
    quorum = Quorum(1, 1, 1)
    assert choose_replacements([quarantined, *up("d")], ("a",), [0], quorum) == {0: "d"}
    assert choose_replacements([quarantined], ("a",), [0], quorum) == {0: "c"}


def test_two_that_fail_with_one_to_come_are_replaced_as_far_as_it_goes() -> None:
    assert choose_replacements(up("d"), ("a", "b", "c"), [2, 1], Quorum(3, 3, 2)) == {1: "d"}
