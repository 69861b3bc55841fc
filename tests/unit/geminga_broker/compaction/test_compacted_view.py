"""Proves that a compacted ledger which is gone is given up only where no other took its place."""

from __future__ import annotations

from typing import cast

from geminga_broker.compaction.compacted_ledger import CompactedEntry, CompactedLedger
from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.compaction.errors import CompactedLedgerGone
from geminga_broker.managed_ledger.positions import Position

HORIZON, LATER = Position(1, 9), Position(2, 9)


class Stored:
    """A compacted ledger without entries."""

    horizon = LATER

    async def read_from(self, *_: object) -> list[CompactedEntry]:
        return []


class Gone:
    """One that was deleted; by the time it says so ``view`` shows ``next_one``, where that is
    given."""

    horizon = HORIZON

    def __init__(self, view: CompactedView, next_one: CompactedLedger | None = None) -> None:
        self._view = view
        self._next_one = next_one

    async def read_from(self, *_: object) -> list[CompactedEntry]:
        if self._next_one is not None:
            self._view.ledger = self._next_one
        raise CompactedLedgerGone(7)


def view_of_a_gone_ledger(next_one: CompactedLedger | None = None) -> CompactedView:
    view = CompactedView("topic")
    view.ledger = cast(CompactedLedger, Gone(view, next_one))
    return view


async def test_where_the_ledger_in_force_is_gone_all_is_read_from_the_log() -> None:
    view = view_of_a_gone_ledger()
    assert await view.read(Position(1, 0), 10, 1000) == ([], None)
    assert view.ledger is None
    assert not view.covers(Position(1, 0))


async def test_a_ledger_that_took_the_place_of_one_that_is_gone_stays() -> None:
    stored = cast(CompactedLedger, Stored())
    view = view_of_a_gone_ledger(stored)
    assert await view.read(Position(1, 0), 10, 1000) == ([], LATER)
    assert view.ledger is stored
    assert view.covers(LATER)
