"""What happens to clusters that replicate to each other, besides what happens to all hosts: links
between them break, operators change their minds, and a whole cluster loses something at once.
"""

from __future__ import annotations

import asyncio
from itertools import permutations
from random import Random

from tests.simulation.replication.geo import NAMESPACE, TOPIC, GeoClusters
from tests.simulation.replication.geo_book import Book

from geminga_broker.broker import Broker
from geminga_protocol.records.cluster.clusters import ClusterData
from geminga_scenarios.cluster import Cluster
from geminga_simulation.zookeeper.server import SESSION_TIMEOUT_S_DEFAULT

# Between two cuts of links, and how long each lasts.
WHOLE_S_MAX = 2.0
CUT_S_MAX = 2.0
CHANGED_S_MAX = 3.0
# Without faults a topic follows its policies so soon.
FOLLOWED_S = 0.2
SHORT_DELAY_MS = 1000
LOW_RATE = 5
# Where a cluster is not: at no host, at no address, nowhere that is told.
WRONG_RECORDS = (
    ClusterData(broker_service_url="pulsar://nowhere:6650"),
    ClusterData(broker_service_url="nowhere"),
    ClusterData(),
)
PARTITIONS = 2
# A broker that stands still for so long has lost its topics to another, if there is one.
FREEZE_S_MIN, FREEZE_S_MAX = 7.0, 12.0
AWAY_S_MAX = 2 * SESSION_TIMEOUT_S_DEFAULT
DOWN_S_MAX = 2.0


async def cut_links(geo: GeoClusters, chance: Random) -> None:
    """Break the links between two clusters again and again, each time in another way. Never ends;
    when it is cancelled, all links are whole."""
    world = geo.world
    while True:
        await asyncio.sleep(chance.random() * WHOLE_S_MAX)
        one, other = chance.choice(list(permutations(geo.clusters.values(), 2)))
        reached = other.proxies or other.brokers
        pairs = [(a.name, b.name) for a in one.brokers for b in reached]
        way = chance.randrange(4)
        try:
            if way < 2:
                for pair in pairs:
                    world.note(f"{pair[0]} hears nothing of {pair[1]}")
                    world.network.cut(*reversed(pair), is_one_way=bool(way))
            for stream in world.network.streams():
                if (stream.host, stream.peer.host) in pairs:
                    world.note(f"stream {stream.host}>{stream.peer.host} breaks")
                    if way == 2:
                        world.network.reset(stream)
                    elif way == 3:
                        world.network.darken(stream)
            await asyncio.sleep(chance.random() * CUT_S_MAX)
        finally:
            for pair in pairs:
                world.network.heal(*pair)


async def unload(broker: Broker) -> None:
    """Have another broker, or the same one, load the topic."""
    await broker.ownership.unload_namespace(NAMESPACE)


async def change_replication(
    geo: GeoClusters, book: Book, changes: int, delaying: str, seconds: float, chance: Random
) -> None:
    """Take clusters out and add them again, change where they are, refuse what comes from one,
    slow replication down, move topics, refuse and delete schemas, divide the topic: so many
    ``changes`` in about so many ``seconds``. ``delaying`` is the cluster whose messages are
    refused."""
    for _ in range(changes):
        await asyncio.sleep(chance.random() * seconds / changes)
        name = chance.choice(list(geo.clusters))
        remote = chance.choice(geo.others(name))
        what = chance.randrange(10)
        if what < 2:
            book.interrupted.add((name, remote))
            await geo.replicate(name, [each for each in geo.others(name) if each != remote])
            await asyncio.sleep(chance.random() * CHANGED_S_MAX)
            await geo.replicate(name, geo.others(name))
        elif what == 2:
            await geo.register(name, remote, chance.choice(WRONG_RECORDS))
            await asyncio.sleep(chance.random() * CHANGED_S_MAX)
            await geo.register(name, remote, geo.record(remote))
        elif what in (3, 4):
            strict = chance.choice(geo.others(delaying))
            await geo.limit_delays(strict, SHORT_DELAY_MS)
            await asyncio.sleep(chance.random() * CHANGED_S_MAX)
            await geo.limit_delays(strict, 0)
        elif what == 5:
            await geo.limit_rate(name, LOW_RATE)
            await asyncio.sleep(chance.random() * CHANGED_S_MAX)
            await geo.limit_rate(name, -1)
        elif what == 6:
            book.forgetful.add(name)
            await geo.clusters[name].do_everywhere(forget_schemas)
            await geo.clusters[name].do_everywhere(unload)
        elif what == 7:
            await geo.divide(name, PARTITIONS)
            # Its replicators look again. Not everywhere: where all clusters unload a topic at once
            # that no client uses, no replicator is left that asks any of them for it.
            await geo.clusters[remote].do_everywhere(unload)
            await asyncio.sleep(chance.random() * CHANGED_S_MAX)
            await geo.divide(name, 0)
        else:
            await geo.clusters[name].do_everywhere(unload)


async def forget_schemas(broker: Broker) -> None:
    """Delete all versions of the schema of the topic: messages sent with them have none now."""
    await broker.topics.services.schemas.delete(TOPIC)


async def refuse_new_schemas(geo: GeoClusters, chance: Random) -> str:
    """Have a cluster take no schema that it has not; which one. What is sent with another waits for
    it, and nothing comes past that."""
    strict = chance.choice(list(geo.clusters))
    await geo.limit_schemas(strict, takes_new=False)
    await asyncio.sleep(FOLLOWED_S)
    return strict


async def take_new_schemas(geo: GeoClusters, strict: str, chance: Random) -> None:
    """Have it take them again after a while."""
    await asyncio.sleep(chance.random() * CHANGED_S_MAX)
    await geo.limit_schemas(strict, takes_new=True)


async def strike(geo: GeoClusters, strikes: int, seconds: float, chance: Random) -> None:
    """Hit a whole cluster, so many times in about so many ``seconds``."""
    for _ in range(strikes):
        await asyncio.sleep(chance.random() * seconds / strikes)
        cluster = chance.choice(list(geo.clusters.values()))
        what = chance.randrange(4)
        if what == 0:
            chance.choice(cluster.brokers).pause(chance.uniform(FREEZE_S_MIN, FREEZE_S_MAX))
        elif what == 1:
            cluster.storage.cut_power(chance.random() * DOWN_S_MAX)
        elif what == 2:
            for bookie in cluster.storage.bookies:
                cluster.storage.fill(bookie, chance.random() * DOWN_S_MAX)
        else:
            await _lose_zookeeper(cluster, chance)


async def _lose_zookeeper(cluster: Cluster, chance: Random) -> None:
    zookeeper = cluster.place.zookeeper
    cluster.world.note(f"the ZooKeeper of {cluster.name} is away")
    zookeeper.go_away()
    try:
        await asyncio.sleep(chance.random() * AWAY_S_MAX)
    finally:
        zookeeper.come_back(keeps_sessions=bool(chance.randrange(2)))
        cluster.world.note(f"the ZooKeeper of {cluster.name} is back")
