"""A fence holds at once, and is told of once it is durable."""

from __future__ import annotations

import errno

import pytest
from tests.unit.geminga_bookie.fakes import KEY, OTHER_KEY
from tests.unit.geminga_bookie.host import Host

from geminga_bookie.sessions.fencing import fence
from geminga_protocol.bookkeeper.errors import BookieFailed, LedgerFenced, WrongMasterKey


class Told:
    """Hears how fences ended."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, bool]] = []

    def hear(self, argument: object, is_written: bool) -> None:  # noqa: FBT001 a WhenFenced
        self.heard.append((argument, is_written))


async def test_it_holds_before_it_is_durable() -> None:
    told = Told()
    async with Host().bookie() as bookie:
        storage, journal = bookie.storage, bookie.journals[0]
        assert not fence(storage, journal, 1, KEY, told.hear, "first")
        with pytest.raises(LedgerFenced):
            storage.admit(1, KEY, 0)
        assert told.heard == []
        assert not fence(storage, journal, 1, KEY, told.hear, "second")
        await journal.drain()
        assert told.heard == [("first", True), ("second", True)]
        assert fence(storage, journal, 1, KEY, told.hear, "third")
        assert len(told.heard) == 2


async def test_a_fence_with_another_master_key_is_refused_at_once() -> None:
    async with Host().bookie() as bookie:
        bookie.storage.admit(1, KEY, 0)
        with pytest.raises(WrongMasterKey):
            fence(bookie.storage, bookie.journals[0], 1, OTHER_KEY, pytest.fail, "never")


async def test_a_journal_that_failed_says_so() -> None:
    told = Told()
    host = Host()
    async with host.bookie() as bookie:
        host.journal_disk.fail("sync", errno.EIO)
        fence(bookie.storage, bookie.journals[0], 1, KEY, told.hear, "first")
        await bookie.journals[0].drain()
        assert told.heard == [("first", False)]
        with pytest.raises(BookieFailed):
            fence(bookie.storage, bookie.journals[0], 1, KEY, pytest.fail, "never")
