"""What a directory's list of logs is written for, and when."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories
from geminga_bookie.entry_logs.log_lists import LogLists
from geminga_bookie.formats import log_list_v1


async def test_a_list_is_written_where_it_changes_and_nowhere_else() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    directories = Directories([("/one", one), ("/two", two)])
    first, second = directories
    lists = LogLists(directories)
    await lists.write({1: first, 2: second}, {1: 500})
    assert log_list_v1.decode("list", one.contents()[log_list_v1.NAME]) == {1: 500}
    assert log_list_v1.decode("list", two.contents()[log_list_v1.NAME]) == {2: 32}
    steps: list[None] = []
    one.on_step = lambda: steps.append(None)
    await lists.write({1: first, 2: second, 3: second}, {1: 500, 2: 40})
    await asyncio.sleep(0)
    assert steps == []
    assert log_list_v1.decode("list", two.contents()[log_list_v1.NAME]) == {2: 40, 3: 32}


async def test_where_there_never_was_a_list_nothing_is_missed() -> None:
    assert await LogLists(Directories([("", MemoryDisk())])).losses({}) == []
