"""What a bookie can tell of a ledger's last-add-confirmed, from memory, disk and its writer."""

from __future__ import annotations

import pytest
from tests.unit.geminga_bookie.fakes import KEY, make_add, make_entry
from tests.unit.geminga_bookie.host import Host
from tests.unit.geminga_bookie.v3_requests import explicit_lac

from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_protocol.bookkeeper.errors import NoSuchEntry, NoSuchLedger
from geminga_protocol.bookkeeper.v2 import Flag


async def test_the_newest_entry_knows_most() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        told = LastConfirmed(bookie.storage)
        await client.ask(make_add(1, 0))
        assert told.find(1) == -1
        await client.ask(make_add(1, 1), make_add(1, 2))
        assert told.find(1) == 1


async def test_what_was_flushed_is_read_once() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        told = LastConfirmed(bookie.storage)
        await client.ask(*(make_add(1, number) for number in range(5)))
        await bookie.checkpointer.run()
        assert told.find(1) is None
        assert await told.fetch(1) == 3
        assert told.find(1) == 3
        await client.ask(make_add(1, 5))
        assert await told.fetch(1) == 4
        await bookie.checkpointer.run()
        assert told.find(1) is None
        assert await told.fetch(1) == 4


@pytest.mark.parametrize("is_flushed_too", [False, True])
async def test_what_comes_while_the_disk_is_read_counts(
    monkeypatch: pytest.MonkeyPatch, *, is_flushed_too: bool
) -> None:
    """A reader that begins to wait after this answer is not notified of that entry."""
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        await client.ask(*(make_add(1, number) for number in range(5)))
        await bookie.checkpointer.run()
        load, loaded = bookie.storage.load, list[int]()

        async def load_slowly(ledger_id: int, entry_id: int, *, is_checked: bool) -> bytes:
            loaded.append(entry_id)
            entry = await load(ledger_id, entry_id, is_checked=is_checked)
            if len(loaded) == 1:
                await client.ask(make_add(1, 5))
                if is_flushed_too:
                    await bookie.checkpointer.run()
            return entry

        monkeypatch.setattr(bookie.storage, "load", load_slowly)
        monkeypatch.setattr(bookie.storage, "find", lambda *_: None)
        assert await LastConfirmed(bookie.storage).fetch(1) == 4
        assert loaded == ([4, 5] if is_flushed_too else [4])


async def test_it_never_goes_back() -> None:
    host = Host()
    async with host.bookie() as bookie:
        client = host.network.connect_client()
        told = LastConfirmed(bookie.storage)
        await client.ask(make_add(1, 8))
        assert told.find(1) == 7
        await client.ask(make_add(1, 2, flags=int(Flag.RECOVERY_ADD)))
        assert told.find(1) == 7
        bookie.storage.set_explicit_lac(1, KEY, explicit_lac(1, 9))
        assert told.find(1) == 9
        bookie.storage.set_explicit_lac(1, KEY, explicit_lac(1, 3))
        assert told.find(1) == 9


async def test_a_ledger_without_any_lac_is_told_apart() -> None:
    async with Host().bookie() as bookie:
        told = LastConfirmed(bookie.storage)
        with pytest.raises(NoSuchLedger):
            told.find(1)
        bookie.storage.fence(1, KEY)
        with pytest.raises(NoSuchEntry):
            told.find(1)
        bookie.storage.set_explicit_lac(1, KEY, explicit_lac(1, 4))
        assert told.find(1) == 4


async def test_an_entry_that_is_none_says_nothing() -> None:
    async with Host().bookie() as bookie:
        bookie.storage.admit(1, KEY, 0)[0] = make_entry(1, 0)[:20]
        assert LastConfirmed(bookie.storage).find(1) == -1


async def test_so_many_ledgers_are_remembered_and_no_more() -> None:
    async with Host().bookie() as bookie:
        told = LastConfirmed(bookie.storage, remembered_max=2)
        for ledger_id in range(5):
            bookie.storage.set_explicit_lac(ledger_id, KEY, explicit_lac(ledger_id, 4))
            assert told.find(ledger_id) == 4
        assert len(told._answered) == 2
