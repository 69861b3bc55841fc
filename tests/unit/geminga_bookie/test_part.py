"""A bookie's process is healthy while it takes entries, and knows its disk."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from tests.unit.geminga_bookie.fakes import make_add
from tests.unit.geminga_bookie.host import Host

from geminga_bookie.config import BookieConfig
from geminga_bookie.errors import BookieError, DirectoriesClash
from geminga_bookie.part import check_health, configuration_of, serve, wait_for_end
from geminga_server.run import StopRequest


async def test_it_is_healthy_until_it_is_read_only() -> None:
    host = Host()
    async with host.bookie() as bookie:
        await check_health(bookie)
        host.journal_disk.fail("sync", errno.EIO)
        await host.network.connect_client().ask(make_add(1, 0))
        with pytest.raises(BookieError, match="bookie-1 is read-only"):
            await check_health(bookie)


async def test_a_bookie_ends_when_it_is_told_to() -> None:
    stop = StopRequest()
    async with Host().bookie() as bookie:
        asyncio.get_running_loop().call_later(5, stop.ask, "enough")
        await wait_for_end(bookie, stop)


async def test_a_bookie_ends_by_itself_when_a_journal_failed() -> None:
    host = Host()
    async with host.bookie() as bookie:
        host.journal_disk.fail("sync", errno.EIO)
        await host.network.connect_client().ask(make_add(1, 0))
        with pytest.raises(BookieError, match="bookie-1 cannot go on: a journal failed"):
            await wait_for_end(bookie, StopRequest())


async def test_a_directory_named_twice_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    twice = (tmp_path / "one", tmp_path / "one")
    settings = BookieConfig(data_directory=tmp_path / "data", journal_directories=twice)
    with pytest.raises(DirectoriesClash, match="one is the same as"):
        await serve(settings, StopRequest())
    assert not os.listdir(tmp_path)  # noqa: PTH208 - nothing else runs


def test_the_settings_are_shown_as_words() -> None:
    settings = BookieConfig(
        port=1, sync=False, ledger_directories=(Path("one"), Path("two")), bookie_id="b1"
    )
    shown = configuration_of(settings)
    assert (shown["port"], shown["sync"], shown["bookie_id"]) == ("1", "False", "b1")
    assert (shown["ledger_directories"], shown["journal_directories"]) == ("one,two", "")
