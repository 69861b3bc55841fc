"""A ledger adheres where the bookies of each entry stand in two racks, if there are two."""

from __future__ import annotations

from tests.unit.geminga_autorecovery.cluster import metadata_of

from geminga_autorecovery.decisions.adherence import is_adhering
from geminga_ledger.replication.quorum import Quorum

BOOKIES = ("b0", "b1", "b2", "b3")
TWO_RACKS = {"b0": "/one", "b1": "/one", "b2": "/two", "b3": "/two"}


def adheres(
    sizes: tuple[int, int, int], *ensembles: tuple[int, ...], racks: dict[str, str]
) -> bool:
    fragments = [(10 * number, each) for number, each in enumerate(ensembles)]
    metadata = metadata_of(sizes, fragments, last_entry=99)
    return is_adhering(metadata, Quorum(*sizes), racks, BOOKIES)


def test_two_racks_are_wanted_where_there_are_two() -> None:
    assert adheres((2, 2, 2), (0, 2), racks=TWO_RACKS)
    assert not adheres((2, 2, 2), (0, 1), racks=TWO_RACKS)
    assert not adheres((2, 2, 2), (0, 2), (0, 1), racks=TWO_RACKS)


def test_the_entries_count_and_not_the_ensemble() -> None:
    assert adheres((4, 2, 2), (0, 2, 1, 3), racks=TWO_RACKS)
    assert not adheres((4, 2, 2), (0, 1, 2, 3), racks=TWO_RACKS)


def test_one_copy_or_one_rack_is_well_placed_anywhere() -> None:
    assert adheres((1, 1, 1), (0,), racks=TWO_RACKS)
    assert adheres((2, 2, 2), (0, 1), racks={})


def test_bookies_without_a_rack_are_all_in_one_rack() -> None:
    racks = {"b3": "/two"}
    assert not adheres((2, 2, 2), (0, 1), racks=racks)
    assert adheres((2, 2, 2), (0, 3), racks=racks)
