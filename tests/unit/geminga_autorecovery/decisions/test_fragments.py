"""Which entries belong where follows from the metadata alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.geminga_autorecovery.cluster import metadata_of

from geminga_autorecovery.decisions.fragments import (
    LedgerFragment,
    belongs_on,
    bookies_of,
    entries_to_verify,
    fragments_of,
    quorum_of,
)
from geminga_ledger.errors import UnsupportedLedger
from geminga_ledger.replication.quorum import Quorum


def test_each_fragment_ends_before_the_next() -> None:
    metadata = metadata_of((2, 2, 2), [(0, (0, 1)), (10, (0, 2))], last_entry=14)
    assert fragments_of(metadata) == (
        LedgerFragment(0, 9, ("b0", "b1")),
        LedgerFragment(10, 14, ("b0", "b2")),
    )


def test_the_last_fragment_of_an_unclosed_ledger_is_open() -> None:
    metadata = metadata_of((2, 2, 2), [(0, (0, 1)), (10, (0, 2))])
    for each in (metadata, metadata.in_recovery()):
        assert [fragment.is_open for fragment in fragments_of(each)] == [False, True]


def test_every_bookie_of_every_fragment_is_the_ledgers() -> None:
    metadata = metadata_of((2, 2, 2), [(0, (0, 1)), (10, (0, 2))])
    assert bookies_of(metadata) == {"b0", "b1", "b2"}


@given(some.integers(0, 50), some.integers(1, 5), some.data())
def test_an_entry_belongs_on_its_write_set(entry_id: int, size: int, data: some.DataObject) -> None:
    quorum = Quorum(size, data.draw(some.integers(1, size)), 1)
    found = {index for index in range(size) if belongs_on(quorum, entry_id, index)}
    assert found == set(quorum.write_set(entry_id))


@given(some.data())
def test_what_is_verified_is_there_and_has_the_ends_in_it(data: some.DataObject) -> None:
    size = data.draw(some.integers(1, 5))
    quorum = Quorum(size, data.draw(some.integers(1, size)), 1)
    first = data.draw(some.integers(0, 20))
    last = data.draw(some.integers(first - 1, first + 40))
    fragment = LedgerFragment(first, last, tuple(f"b{each}" for each in range(size)))
    index = data.draw(some.integers(0, size - 1))
    percentage = data.draw(some.integers(0, 100))
    stored = [each for each in range(first, last + 1) if index in quorum.write_set(each)]
    wanted = entries_to_verify(
        fragment,
        quorum,
        index,
        percentage=percentage,
        draw=lambda below: data.draw(some.integers(0, below - 1)),
    )
    assert set(wanted) <= set(stored)
    assert wanted == sorted(set(wanted))
    if stored:
        assert (wanted[0], wanted[-1]) == (stored[0], stored[-1])
        # Both ends, and at the most one of each of so many parts.
        assert len(wanted) <= 2 + (stored[-1] - stored[0] + 1) * percentage // 100
    if percentage == 100:
        assert wanted == stored


def test_metadata_that_contradicts_itself_is_refused() -> None:
    good = metadata_of((2, 2, 2), [(0, (0, 1))])
    assert quorum_of(1, good) == Quorum(2, 2, 2)
    for bad in (
        replace(good, ensemble_size=1),
        replace(good, ensemble_size=3),
        replace(good, fragments=()),
    ):
        with pytest.raises(UnsupportedLedger, match="ledger 1"):
            quorum_of(1, bad)
