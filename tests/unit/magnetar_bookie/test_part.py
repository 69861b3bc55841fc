"""A bookie's process is healthy while it takes entries, and knows its disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.magnetar_bookie.fakes import make_add
from tests.unit.magnetar_bookie.host import Host

from magnetar_bookie.errors import BookieError
from magnetar_bookie.part import check_health, disk_usage
from magnetar_bookie.part_settings import BookiePartSettings


async def test_it_is_healthy_until_it_is_read_only() -> None:
    host = Host()
    async with host.bookie() as bookie:
        await check_health(bookie)
        host.journal_disk.fail("sync", errno.EIO)
        await host.network.connect_client().ask(make_add(1, 0))
        with pytest.raises(BookieError, match="bookie-1 is read-only"):
            await check_health(bookie)


def test_the_disk_is_neither_empty_nor_more_than_full(tmp_path: Path) -> None:
    assert 0 < disk_usage(BookiePartSettings(data_directory=tmp_path)) <= 1
