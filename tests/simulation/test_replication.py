"""Proves, over many seeds, that clusters which replicate a topic to each other end with the same
messages: each once, those of one cluster in its order, and nothing left to replicate.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.simulation.cluster import Shape
from tests.simulation.geo import LAST_MESSAGES, MESSAGES, Book, GeoClusters, check, live
from tests.simulation.verdicts import raise_loop_failures

from geminga_broker.replication.config import ReplicationConfig
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEND_S = 5.0
TIME_LIMIT_S = 900.0


async def story() -> Book:
    async with World() as world:
        geo = GeoClusters(world, {"east": Shape(), "west": Shape()}, ReplicationConfig())
        await geo.open()
        book = Book()
        lives = []
        for cluster in geo.clusters.values():
            host = cluster.place.host("client")
            host.start(lambda _: asyncio.Event().wait())
            lives.append(host.run(live(cluster, book, seconds=SEND_S, batching=None, keeps=True)))
        for _ in lives:
            await book.sending.acquire()
        await geo.until_replicated()
        book.are_replicating.set()
        for _ in lives:
            await book.sent_all.acquire()
        book.is_calm.set()
        for _ in lives:
            await book.sent_all.acquire()
        await geo.until_replicated()
        book.is_replicated.set()
        await asyncio.gather(*lives)
        raise_loop_failures(world)
    check(book, begins_at_first=False)
    return book


def run(seed: int) -> Outcome[Book]:
    return simulate(seed, partial(story), time_limit_s=TIME_LIMIT_S)


def test_two_clusters_have_the_same_messages() -> None:
    book = run(1).result
    assert {len(read) for read in book.read.values()} == {2 * (MESSAGES + LAST_MESSAGES)}
