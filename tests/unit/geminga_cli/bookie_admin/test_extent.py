"""An extent gives the entries that there are, and no others."""

from __future__ import annotations

from geminga_cli.bookie_admin.extent import Extent
from geminga_protocol.bookkeeper.availability import Run


def test_entries_beyond_what_is_confirmed_are_those_that_are_stored() -> None:
    extent = Extent(1, (Run(3, 4), Run(9, 9)))
    assert extent.last == 9
    assert list(extent.entry_ids()) == [0, 1, 3, 4, 9]
    assert list(extent.entry_ids(1, 3)) == [1, 3]
    assert list(extent.entry_ids(10)) == []


def test_without_entries_beyond_it_ends_where_it_is_confirmed() -> None:
    assert list(Extent(2).entry_ids()) == [0, 1, 2]
    assert list(Extent(-1).entry_ids()) == []
    assert Extent(-1).last == -1
