"""A wait ends once: with news, by its time, or with who waited."""

from __future__ import annotations

import asyncio
from struct import Struct

import pytest
from tests.unit.geminga_bookie.fakes import KEY, make_entry
from tests.unit.geminga_bookie.host import Host

from geminga_bookie.sessions.long_polls import LongPoll, LongPolls
from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_bookie.storage.storage import Storage
from geminga_protocol.bookkeeper.errors import BookieOverloaded

_IDS = Struct(">qq")


class Waits:
    """Waits on a bookie's storage, and how those that are over ended."""

    def __init__(self, storage: Storage, *, waiting_max: int = 100) -> None:
        self.storage = storage
        self.polls = LongPolls(LastConfirmed(storage), waiting_max)
        self.ended: list[tuple[LongPoll, bool]] = []

    def wait(self, ledger_id: int, previous_lac: int, timeout_s: float = 1.0) -> LongPoll:
        return self.polls.wait(
            ledger_id,
            previous_lac,
            timeout_s,
            lambda poll, is_news: self.ended.append((poll, is_news)),
        )

    def add(self, ledger_id: int, *entry_ids: int) -> None:
        for entry_id in entry_ids:
            entries = self.storage.admit(ledger_id, KEY, 0)
            entries[entry_id] = make_entry(ledger_id, entry_id)
        self.polls.added([_IDS.pack(ledger_id, entry_id) for entry_id in entry_ids])


async def test_only_those_are_woken_that_know_less() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage)
        first, second, other = waits.wait(1, 0), waits.wait(1, 1), waits.wait(2, -1)
        waits.add(1, 0, 1)
        assert waits.ended == []
        waits.add(1, 2)
        assert waits.ended == [(first, True)]
        waits.add(1, 3)
        assert waits.ended == [(first, True), (second, True)]
        assert waits.polls.waiting == {2: {other: None}}


async def test_a_wait_that_ended_does_not_end_again() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage)
        first = waits.wait(1, -1)
        waits.add(1, 1)
        waits.polls.cancel(first)
        await asyncio.sleep(5)
        assert waits.ended == [(first, True)]
        assert (waits.polls.count, waits.polls.waiting) == (0, {})


async def test_without_news_the_time_decides() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage)
        late, early = waits.wait(1, 5, timeout_s=3), waits.wait(1, 5, timeout_s=2)
        await asyncio.sleep(2.5)
        assert waits.ended == [(early, False)]
        await asyncio.sleep(1)
        assert waits.ended == [(early, False), (late, False)]


async def test_news_that_a_checkpoint_carried_away_are_news() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage)
        waits.add(1, 0, 1, 2)
        await bookie.checkpointer.run()
        first = waits.wait(1, 0)
        waits.polls.confirmed(1)
        assert waits.ended == [(first, True)]


async def test_a_ledger_that_is_not_there_is_no_news() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage)
        waits.wait(1, -1)
        waits.polls.confirmed(1)
        assert waits.ended == []


async def test_more_waits_than_allowed_are_refused() -> None:
    async with Host().bookie() as bookie:
        waits = Waits(bookie.storage, waiting_max=1)
        first = waits.wait(1, -1)
        with pytest.raises(BookieOverloaded):
            waits.wait(2, -1)
        waits.polls.cancel(first)
        waits.wait(2, -1)
