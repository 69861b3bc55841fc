"""Bookies tell which entries they have; who does not tell is told from who has none."""

from __future__ import annotations

from tests.unit.geminga_autorecovery.cluster import LEDGER_OPTIONS, Cluster, metadata_of

from geminga_autorecovery.decisions.fragments import LedgerFragment
from geminga_autorecovery.decisions.replicas import Replicas
from geminga_autorecovery.replication import entry_lists as module
from geminga_autorecovery.replication.entry_lists import EntryLists, count_replicas
from geminga_ledger.replication.quorum import Quorum
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.availability import Run

METADATA = metadata_of((3, 3, 2), [(0, (0, 1, 2))], last_entry=9)


async def test_each_bookie_tells_what_it_has_or_does_not_tell() -> None:
    cluster = Cluster(5)
    cluster.put_ledger(7, METADATA, without=[(1, 4)])
    cluster.bookies[2].kill()
    cluster.bookies[4].v3.refusals[pb.GET_LIST_OF_ENTRIES_OF_LEDGER] = pb.EIO
    registry, links = cluster.links()
    async with registry, links:
        lists = EntryLists(links, answer_timeout_s=LEDGER_OPTIONS.answer_timeout_s)
        assert await lists.ask(7, {"b0", "b1", "b2", "b3", "b4", "nobody"}) == {
            "b0": [Run(0, 9)],
            "b1": [Run(0, 3), Run(5, 9)],
            "b2": None,
            "b3": [],
            "b4": None,
            "nobody": None,
        }


async def test_many_entries_are_counted_in_portions() -> None:
    quorum, bookies = Quorum(2, 2, 2), ("a", "b")
    last = 3 * module.ENTRIES_PER_TURN
    fragment = LedgerFragment(0, last, bookies)
    lists = {"a": [Run(0, last)], "b": [Run(0, last - 1)]}
    assert await count_replicas(fragment, quorum, lists) == Replicas(frozenset({"b"}), 1)
    nothing = LedgerFragment(5, 4, bookies)
    assert await count_replicas(nothing, quorum, {}) == Replicas(frozenset(), 2)
