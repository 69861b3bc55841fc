"""The journal: what one sync made durable is answered together, and nothing else is."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field

import pytest
from tests.unit.geminga_bookie.fakes import KEY, make_add
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.formats.journal_v1 import Fence, JournalMark, file_name
from geminga_bookie.journal.journal import Journal
from geminga_bookie.journal.replay import Replay
from geminga_simulation.event_loop.clock import SimulatedClock


@dataclass
class Witness:
    """A journal, and what it told."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    told: list[tuple[object, bool]] = field(default_factory=list)
    failures: list[OSError] = field(default_factory=list)
    writes: int = 0

    def journal(self, *, file_bytes_max: int = 1 << 30, interval_s: float = 0.0) -> Journal:
        def written() -> None:
            self.writes += 1

        return Journal(
            self.disk,
            SimulatedClock(),
            file_bytes_max=file_bytes_max,
            group_interval_max_s=interval_s,
            close_timeout_s=1.0,
            on_written=written,
            on_failed=self.failures.append,
        )

    def add(self, journal: Journal, entry_id: int) -> None:
        journal.forming.waiters.append((self._tell, entry_id))
        journal.append_adds(make_add(1, entry_id), 1)

    def _tell(self, argument: object, is_written: bool) -> None:  # noqa: FBT001 a Waiter
        self.told.append((argument, is_written))

    async def durable_entries(self, mark: JournalMark | None = None) -> list[int]:
        """What a power cut now would leave."""
        entries: list[int] = []
        async for group in Replay(self.disk.after_crash(), mark).groups():
            for adds, _ in _decode(group.body):
                entries += [entry_id for _, entry_id, _, _ in adds]
        return entries


def _decode(body: bytes) -> list[tuple[list[tuple[int, int, bytes, bytes]], object]]:
    from geminga_bookie.formats.journal_v1 import decode_body

    return list(decode_body("f", body))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_entry_is_synced_and_answered_without_waiting() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        began_s = asyncio.get_running_loop().time()
        witness.add(journal, 0)
        await settle()
        assert witness.told == [(0, True)]
        assert await witness.durable_entries() == [0]
        assert asyncio.get_running_loop().time() == began_s
        assert (journal.groups, witness.writes) == (1, 1)


async def test_nothing_is_answered_before_its_sync() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.disk.gate = asyncio.Event()
        witness.add(journal, 0)
        await settle()
        assert witness.told == []
        assert await witness.durable_entries() == []
        assert journal.forming.size + journal.writing_bytes > 0
        witness.disk.gate.set()
        await settle()
        assert witness.told == [(0, True)]
        assert journal.forming.size + journal.writing_bytes == 0


async def test_what_comes_during_a_sync_is_one_group() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.disk.gate = asyncio.Event()
        syncs = witness.disk.syncs
        for entry_id in range(5):
            witness.add(journal, entry_id)
            await settle()
        witness.disk.gate.set()
        await settle()
        assert [entry_id for entry_id, _ in witness.told] == [0, 1, 2, 3, 4]
        assert witness.disk.syncs == syncs + 2
        assert journal.groups == 2
        assert await witness.durable_entries() == [0, 1, 2, 3, 4]


async def test_the_mark_is_the_end_of_the_last_durable_group() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
        await settle()
        mark = journal.mark
        assert mark == JournalMark(1, len(witness.disk.files[file_name(1)].content), 2)
        witness.disk.gate = asyncio.Event()
        witness.add(journal, 1)
        await settle()
        assert journal.mark == mark
        witness.disk.gate.set()
        await settle()
        assert await witness.durable_entries(mark) == [1]


async def test_files_are_rotated_and_trimmed_before_a_mark() -> None:
    witness = Witness()
    async with witness.journal(file_bytes_max=200) as journal:
        for entry_id in range(10):
            witness.add(journal, entry_id)
            await settle()
        assert len(witness.disk.files) > 3
        assert await witness.durable_entries() == list(range(10))
        witness.add(journal, 10)
        await settle()
        mark = journal.mark
        await journal.trim(mark)
        assert sorted(witness.disk.files) == [file_name(mark.file_number)]
        assert await witness.durable_entries(mark) == []


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_a_failed_write_fails_all_waiters_and_ends_the_journal(operation: str) -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
        await settle()
        witness.disk.gate = asyncio.Event()
        witness.add(journal, 1)
        await settle()
        witness.add(journal, 2)
        witness.disk.fail(operation, errno.ENOSPC)
        if operation == "append":  # the group under way is written already: the next one fails
            witness.disk.gate.set()
            await settle()
            assert witness.told == [(0, True), (1, True), (2, False)]
        else:
            witness.disk.gate.set()
            await settle()
            assert witness.told == [(0, True), (1, False), (2, False)]
        assert [error.errno for error in witness.failures] == [errno.ENOSPC]
        assert journal.error is witness.failures[0]
        assert journal.forming.size + journal.writing_bytes == 0


async def test_a_journal_closes_while_its_next_file_is_being_made() -> None:
    witness = Witness()
    async with witness.journal(file_bytes_max=1) as journal:
        witness.add(journal, 0)
        await journal.drain()
        witness.disk.gate = asyncio.Event()  # the header of the next file is never synced
        while file_name(2) not in witness.disk.files:  # noqa: ASYNC110 -- a disk has no event
            await asyncio.sleep(0)
    assert await witness.durable_entries() == [0]


async def test_a_failed_rotation_ends_the_journal_after_the_answers() -> None:
    witness = Witness()
    async with witness.journal(file_bytes_max=1) as journal:
        witness.disk.fail("open", errno.EMFILE)
        witness.add(journal, 0)
        await settle()
        assert witness.told == [(0, True)]
        assert journal.error is not None
        assert await witness.durable_entries() == [0]


async def test_closing_waits_for_what_is_under_way() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
        witness.add(journal, 1)
    assert witness.told == [(0, True), (1, True)]


async def test_closing_gives_back_what_is_reserved() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
        await settle()
        assert witness.disk.files[file_name(1)].reserved
    assert not witness.disk.files[file_name(1)].reserved
    assert await witness.durable_entries() == [0]


async def test_closing_gives_up_on_a_disk_that_hangs() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.disk.gate = asyncio.Event()
        witness.add(journal, 0)
        await settle()
    assert witness.told == []


async def test_a_new_journal_goes_on_with_the_numbers() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
    replay = Replay(witness.disk, None)
    assert len([group async for group in replay.groups()]) == 1
    journal = witness.journal()
    journal.continue_after(replay.file_numbers, replay.next_group)
    async with journal:
        witness.add(journal, 1)
        await settle()
        assert sorted(witness.disk.files) == [file_name(1), file_name(2)]
        assert await witness.durable_entries() == [0, 1]
        await journal.trim(journal.mark)
        assert sorted(witness.disk.files) == [file_name(2)]


async def test_a_file_torn_while_it_was_made_is_made_again() -> None:
    witness = Witness(disk=MemoryDisk({file_name(1): b"half a header"}))
    async with witness.journal() as journal:
        witness.add(journal, 0)
        await settle()
    assert await witness.durable_entries() == [0]


async def test_fences_are_durable_like_adds() -> None:
    witness = Witness()
    async with witness.journal() as journal:
        witness.add(journal, 0)
        journal.append_mark(Fence(1, KEY))
        await settle()
        assert journal.groups == 1
        (group,) = [group async for group in Replay(witness.disk.after_crash(), None).groups()]
        assert [fence for _, fence in _decode(group.body)] == [None, (1, KEY)]


async def test_a_steady_stream_shares_its_syncs() -> None:
    witness = Witness()
    async with witness.journal(interval_s=0.004) as journal:
        for entry_id in range(10_000):
            witness.add(journal, entry_id)
            if entry_id % 10 == 9:
                await asyncio.sleep(0.0005)
        await journal.drain()
        assert len(witness.told) == 10_000
        assert journal.groups < 1000
        assert journal.add_durations.count == 10_000
        assert journal.sync_durations.count == journal.groups


async def test_a_waiter_that_raises_leaves_no_other_waiter_without_a_call() -> None:
    witness = Witness()

    def mistaken(argument: object, is_written: bool) -> None:  # noqa: FBT001 a Waiter
        raise AssertionError(argument, is_written)

    async with witness.journal() as journal:
        journal.forming.waiters.append((mistaken, None))
        witness.add(journal, 0)
        await settle()
        assert witness.told == [(0, False)]
        assert journal.error is not None
        assert len(witness.failures) == 1
