"""The bookies there are, are those registered, writable or not."""

from __future__ import annotations

from geminga_autorecovery.zookeeper.live_bookies import LiveBookies, read_live_bookies
from geminga_simulation.zookeeper.interception import InstantSession


async def test_writable_and_read_only_bookies_are_distinguished() -> None:
    coordination = InstantSession()
    for name in ("b0", "b1", "readonly/b2"):
        coordination.zookeeper.put(f"/ledgers/available/{name}")
    live = await read_live_bookies(coordination.children)
    assert live == LiveBookies(frozenset({"b0", "b1"}), frozenset({"b2"}))
    assert live.all == {"b0", "b1", "b2"}


async def test_an_empty_cluster_has_none() -> None:
    live = await read_live_bookies(InstantSession().children)
    assert live.all == frozenset()
