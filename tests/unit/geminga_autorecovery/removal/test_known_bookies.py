"""A bookie is known by its registration, its cookie, or a ledger; any other id is refused."""

from __future__ import annotations

import pytest
from tests.unit.geminga_autorecovery.cluster import Cluster, metadata_of

from geminga_autorecovery.errors import BookieUnknown
from geminga_autorecovery.removal.known_bookies import require_known
from geminga_protocol.records.bookies.cookies import cookie_path


async def test_one_trace_is_enough() -> None:
    cluster = Cluster(2)
    cluster.coordination.zookeeper.put(cookie_path("with-a-cookie"), b"a cookie")
    cluster.put_ledger(1, metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9))
    cluster.lose(1)
    async with cluster.repair() as repair:
        for bookie_id in ("b0", "b1", "with-a-cookie"):
            await require_known(bookie_id, cluster.coordination, repair.store)


async def test_an_id_without_a_trace_is_refused_with_those_there_are() -> None:
    cluster = Cluster(2)
    cluster.coordination.zookeeper.put(cookie_path("dead"), b"a cookie")
    async with cluster.repair() as repair:
        with pytest.raises(BookieUnknown, match=r"no bookie b7: .*there are: b0, b1, dead$"):
            await require_known("b7", cluster.coordination, repair.store)


async def test_where_nothing_was_ever_registered_there_is_none() -> None:
    cluster = Cluster(0)
    async with cluster.repair() as repair:
        with pytest.raises(BookieUnknown, match=r"there are: none$"):
            await require_known("b7", cluster.coordination, repair.store)
