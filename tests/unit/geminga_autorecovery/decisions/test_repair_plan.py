"""Every lost bookie of a fragment gets a successor if there is one, and no bookie appears twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from tests.unit.geminga_autorecovery.cluster import metadata_of

from geminga_autorecovery.decisions.findings import FaultyFragment, Finding
from geminga_autorecovery.decisions.fragments import LedgerFragment
from geminga_autorecovery.decisions.repair_plan import Replacement, plan_repair, with_replacements
from geminga_autorecovery.errors import FragmentChanged

FRAGMENT = LedgerFragment(0, 9, ("b0", "b1", "b2"))
WRITABLE = frozenset({"b0", "b1", "b2", "b3", "b4"})


class Choice:
    """Gives the bookies it was told, as far as they go; remembers for which places."""

    def __init__(self, *bookies: str) -> None:
        self._bookies = bookies
        self.places: frozenset[int] | None = None

    def __call__(self, ensemble: tuple[str, ...], places: Collection[int]) -> Mapping[int, str]:
        assert ensemble == FRAGMENT.ensemble
        self.places = frozenset(places)
        return dict(zip(sorted(places), self._bookies, strict=False))


def test_lost_bookies_are_replaced() -> None:
    fault = FaultyFragment(FRAGMENT, {0: Finding.GONE, 2: Finding.SILENT})
    plan = plan_repair(fault, writable=WRITABLE, choose=Choice("b3", "b4"))
    assert plan.replacements == (Replacement(0, "b0", "b3"), Replacement(2, "b2", "b4"))
    assert plan.unplaced == ()


def test_a_bookie_that_lacks_something_is_given_it_back() -> None:
    fault = FaultyFragment(FRAGMENT, {1: Finding.LACKING})
    choice = Choice("b3")
    plan = plan_repair(fault, writable=WRITABLE, choose=choice)
    assert plan.replacements == (Replacement(1, "b1", "b1"),)
    assert plan.replacements[0].is_in_place
    assert choice.places is None


def test_a_read_only_bookie_that_lacks_something_is_replaced() -> None:
    fault = FaultyFragment(FRAGMENT, {1: Finding.LACKING})
    plan = plan_repair(fault, writable=WRITABLE - {"b1"}, choose=Choice("b3"))
    assert plan.replacements == (Replacement(1, "b1", "b3"),)


def test_where_replacing_is_preferred_only_the_last_resort_is_in_place() -> None:
    fault = FaultyFragment(FRAGMENT, {0: Finding.LACKING, 1: Finding.LACKING})
    plan = plan_repair(fault, writable=WRITABLE, choose=Choice("b3"), is_replacing_preferred=True)
    assert plan.replacements == (Replacement(0, "b0", "b3"), Replacement(1, "b1", "b1"))


def test_a_bookie_without_a_replacement_is_reported_and_the_rest_is_planned() -> None:
    fault = FaultyFragment(FRAGMENT, {0: Finding.GONE, 1: Finding.GONE, 2: Finding.LACKING})
    plan = plan_repair(fault, writable=WRITABLE, choose=Choice("b3"))
    assert plan.replacements == (Replacement(0, "b0", "b3"), Replacement(2, "b2", "b2"))
    assert plan.unplaced == ("b1",)


CLOSED = metadata_of((3, 3, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))], last_entry=14)


def test_replacements_change_their_fragment_alone() -> None:
    changed = with_replacements(7, CLOSED, 0, [Replacement(1, "b1", "b4")])
    assert changed == metadata_of((3, 3, 2), [(0, (0, 4, 2)), (10, (0, 1, 3))], last_entry=14)


def test_replacements_that_stand_there_change_nothing() -> None:
    done = with_replacements(7, CLOSED, 0, [Replacement(1, "b1", "b4")])
    assert done is not None
    assert with_replacements(7, done, 0, [Replacement(1, "b1", "b4")]) is None
    assert with_replacements(7, CLOSED, 0, [Replacement(1, "b1", "b1")]) is None


@pytest.mark.parametrize(
    ("first_entry", "replacement"),
    [
        (5, Replacement(1, "b1", "b4")),  # there is no such fragment
        (0, Replacement(1, "b9", "b4")),  # another worker replaced the old one
        (0, Replacement(1, "b1", "b2")),  # another worker put the new one in elsewhere
    ],
)
def test_a_fragment_that_another_process_changed_is_left(
    first_entry: int, replacement: Replacement
) -> None:
    with pytest.raises(FragmentChanged, match="ledger 7"):
        with_replacements(7, CLOSED, first_entry, [replacement])


def test_the_open_last_fragment_is_never_changed() -> None:
    unclosed = metadata_of((3, 3, 2), [(0, (0, 1, 2)), (10, (0, 1, 3))])
    replacement = Replacement(1, "b1", "b4")
    assert with_replacements(7, unclosed, 0, [replacement]) is not None
    with pytest.raises(FragmentChanged):
        with_replacements(7, unclosed, 10, [replacement])
