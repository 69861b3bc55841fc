"""Replay brings back exactly the groups that were synced, whatever a crash left behind them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY, make_add, make_entry
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.errors import CorruptFile, JournalFileMissing
from geminga_bookie.formats.journal_v1 import Fence, JournalMark, decode_body, file_name
from geminga_bookie.journal.journal import Journal
from geminga_bookie.journal.replay import Replay
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

FIRST = file_name(1)


async def write_journal(groups: list[list[int]], *, file_bytes_max: int = 1 << 30) -> Written:
    """A journal with one group for each list of entry ids; entry 0 also fences."""
    disk = MemoryDisk()
    failures: list[OSError] = []
    journal = Journal(
        disk,
        SimulatedClock(),
        file_bytes_max=file_bytes_max,
        group_interval_max_s=0,
        close_timeout_s=1,
        on_written=lambda: None,
        on_failed=failures.append,
    )
    marks: list[JournalMark] = []
    async with journal:
        marks.append(journal.mark)
        for group in groups:
            adds = b"".join(make_add(1, entry_id) for entry_id in group)
            journal.append_adds(adds, len(group))
            if 0 in group:
                journal.append_mark(Fence(1, KEY))
            await journal.drain()
            marks.append(journal.mark)
    assert not failures
    return Written(disk, marks)


class Written:
    """A journal on a disk, and the mark before and after each of its groups."""

    def __init__(self, disk: MemoryDisk, marks: list[JournalMark]) -> None:
        self.disk = disk
        self.marks = marks


async def replayed(disk: MemoryDisk, mark: JournalMark | None = None) -> list[list[int]]:
    """The entry ids of each group that comes back."""
    groups: list[list[int]] = []
    async for group in Replay(disk, mark).groups():
        ids: list[int] = []
        for adds, fence in decode_body(group.path, group.body):
            for ledger_id, entry_id, key, entry in adds:
                assert (ledger_id, key, entry) == (1, KEY, make_entry(1, entry_id))
                ids.append(entry_id)
            assert fence in (None, (1, KEY))
        groups.append(ids)
    return groups


GROUPS = [[0, 1], [2], [3, 4, 5], [6]]


async def test_an_empty_directory_has_nothing_to_replay() -> None:
    replay = Replay(MemoryDisk(), None)
    assert [group async for group in replay.groups()] == []
    assert (replay.file_numbers, replay.next_group) == ([], 1)


async def test_all_groups_come_back_in_order_with_their_marks() -> None:
    written = await write_journal(GROUPS)
    replay = Replay(written.disk, None)
    assert [group.mark async for group in replay.groups()] == written.marks[1:]
    assert await replayed(written.disk) == GROUPS
    assert (replay.file_numbers, replay.next_group) == ([1], 5)


@pytest.mark.parametrize("done", range(len(GROUPS) + 1))
async def test_replay_begins_at_the_mark(done: int) -> None:
    written = await write_journal(GROUPS)
    assert await replayed(written.disk, written.marks[done]) == GROUPS[done:]


async def test_groups_of_several_files_come_back() -> None:
    groups = [[number] for number in range(20)]
    written = await write_journal(groups, file_bytes_max=300)
    assert len(written.disk.files) > 5
    assert await replayed(written.disk) == groups
    for done, mark in enumerate(written.marks):
        assert await replayed(written.disk, mark) == groups[done:]


async def test_every_prefix_of_the_journal_replays_to_exactly_the_whole_groups() -> None:
    written = await write_journal(GROUPS)
    content = written.disk.contents()[FIRST]
    ends = [mark.offset for mark in written.marks]
    for size in range(len(content) + 1):
        disk = MemoryDisk({FIRST: content[:size]})
        whole = sum(end <= size for end in ends[1:])
        assert await replayed(disk) == GROUPS[:whole]
        # The tail is gone now, so that the file may stand before others.
        assert disk.contents() == ({FIRST: content[: ends[whole]]} if whole else {})
        assert await replayed(disk) == GROUPS[:whole]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_torn_last_group_is_cut_off_however_it_is_torn(data: st.DataObject) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        written = runner.run(write_journal(GROUPS))
        content = written.disk.contents()[FIRST]
        start = written.marks[-2].offset
        tail = data.draw(st.binary(max_size=len(content) - start))
        if tail == content[start:]:
            return
        disk = MemoryDisk({FIRST: content[:start] + tail})
        assert runner.run(replayed(disk)) == GROUPS[:-1]
        assert disk.contents()[FIRST] == content[:start]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_bit_flipped_before_the_last_group_names_the_file(data: st.DataObject) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        written = runner.run(write_journal(GROUPS))
        content = bytearray(written.disk.contents()[FIRST])
        bit = data.draw(st.integers(0, written.marks[-2].offset * 8 - 1))
        content[bit // 8] ^= 1 << bit % 8
        disk = MemoryDisk({FIRST: bytes(content)})
        with pytest.raises(CorruptFile, match=FIRST):
            runner.run(replayed(disk))
        assert disk.contents()[FIRST] == bytes(content)


async def test_damage_before_the_mark_does_not_matter_any_more() -> None:
    written = await write_journal(GROUPS)
    written.disk.files[FIRST].content[written.marks[1].offset - 1] ^= 1
    assert await replayed(written.disk, written.marks[1]) == GROUPS[1:]


async def test_a_torn_tail_with_a_file_behind_it_is_damage() -> None:
    written = await write_journal([[1], [2], [3]], file_bytes_max=150)
    first = written.disk.files[FIRST]
    del first.content[-1]
    with pytest.raises(CorruptFile, match=FIRST):
        await replayed(written.disk)


async def test_reserved_zeros_behind_the_last_group_are_cut_off_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = await write_journal(GROUPS)
    content = written.disk.contents()[FIRST]
    for mark in (None, written.marks[-1]):
        disk = MemoryDisk({FIRST: content + bytes(10_000)})
        assert await replayed(disk, mark) == (GROUPS if mark is None else [])
        assert disk.contents()[FIRST] == content
    assert caplog.records == []


async def test_a_torn_group_among_reserved_zeros_is_cut_off() -> None:
    written = await write_journal(GROUPS)
    content = written.disk.contents()[FIRST]
    start, end = (mark.offset for mark in written.marks[-2:])
    for torn in range(start, end):
        disk = MemoryDisk({FIRST: content[:torn] + bytes(end - torn + 100)})
        assert await replayed(disk) == GROUPS[:-1]
        assert disk.contents()[FIRST] == content[:start]


@pytest.mark.parametrize("is_given_up", [False, True], ids=["killed", "its sync failed"])
async def test_what_came_back_is_not_lost_when_the_power_fails_after_another_file_was_begun(
    *, is_given_up: bool
) -> None:
    written = await write_journal(GROUPS)
    content = written.disk.contents()[FIRST]
    file = written.disk.files[FIRST]
    file.synced = written.marks[-2].offset  # the last group was not synced
    file.reserved = 0
    file.is_given_up = is_given_up
    assert await replayed(written.disk) == GROUPS
    assert written.disk.after_crash().contents()[FIRST] == content


async def test_a_full_disk_does_not_keep_a_journal_from_coming_back() -> None:
    written = await write_journal(GROUPS)
    written.disk.files[FIRST].reserved = 0
    written.disk.capacity = len(written.disk.contents()[FIRST])
    assert await replayed(written.disk) == GROUPS
    assert written.disk.syncs > len(GROUPS)


async def test_a_file_that_gives_nothing_back_is_left_as_it_is() -> None:
    written = await write_journal(GROUPS)
    file = written.disk.files[FIRST]
    assert await replayed(written.disk, written.marks[-1]) == []
    assert written.disk.files[FIRST] is file


async def test_a_file_without_a_group_is_removed_since_its_header_may_not_be_durable() -> None:
    written = await write_journal([])
    replay = Replay(written.disk, None)
    assert [group async for group in replay.groups()] == []
    assert written.disk.contents() == {}
    assert replay.file_numbers == []


async def test_a_file_without_a_group_that_the_mark_is_in_stays() -> None:
    written = await write_journal([])
    replay = Replay(written.disk, written.marks[0])
    assert [group async for group in replay.groups()] == []
    assert replay.file_numbers == [1]


async def test_a_missing_file_is_named() -> None:
    written = await write_journal([[number] for number in range(9)], file_bytes_max=150)
    assert len(written.disk.files) > 3
    del written.disk.files[file_name(2)]
    with pytest.raises(JournalFileMissing, match=file_name(2)):
        await replayed(written.disk)
    with pytest.raises(JournalFileMissing, match=file_name(2)):
        await replayed(written.disk, JournalMark(2, 32, 3))
    with pytest.raises(JournalFileMissing, match=FIRST):
        await replayed(MemoryDisk(), JournalMark(1, 32, 1))


async def test_a_file_shorter_than_its_mark_is_damage() -> None:
    written = await write_journal(GROUPS)
    mark = written.marks[-1]
    disk = MemoryDisk({FIRST: written.disk.contents()[FIRST][:-3]})
    with pytest.raises(CorruptFile, match="3 bytes are missing"):
        await replayed(disk, mark)


async def test_a_group_that_was_left_out_is_damage() -> None:
    written = await write_journal(GROUPS)
    content = written.disk.files[FIRST].content
    del content[written.marks[1].offset : written.marks[2].offset]
    with pytest.raises(CorruptFile, match=FIRST):
        await replayed(written.disk)


async def test_a_last_group_behind_one_that_was_left_out_is_not_cut_off() -> None:
    written = await write_journal(GROUPS)
    content = written.disk.files[FIRST].content
    del content[written.marks[2].offset : written.marks[3].offset]
    before = bytes(content)
    with pytest.raises(CorruptFile, match=f"{FIRST}.*group 4 stands where group 3 should"):
        await replayed(written.disk)
    assert written.disk.contents() == {FIRST: before}


async def test_a_last_file_behind_one_that_lacks_its_last_group_is_not_removed() -> None:
    written = await write_journal([[1], [2], [3]], file_bytes_max=150)
    assert [mark.file_number for mark in written.marks] == [1, 1, 1, 2]
    del written.disk.files[FIRST].content[written.marks[1].offset :]
    before = written.disk.contents()
    with pytest.raises(CorruptFile, match=f"{file_name(2)}.*group 3 stands where group 2 should"):
        await replayed(written.disk)
    assert written.disk.contents() == before


async def test_a_large_group_comes_back() -> None:
    ids = list(range(120_000))
    written = await write_journal([[1], ids, [2]])
    assert len(written.disk.files[FIRST].content) > 8_000_000
    assert await replayed(written.disk) == [[1], ids, [2]]
