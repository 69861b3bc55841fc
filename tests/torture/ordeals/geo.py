"""The ordeal of three clusters that replicate to each other, any part of which, any link between
which, and each of which as a whole may go at any time.

Each cluster has its own ZooKeeper, bookies, brokers and proxy; clients send to all three at once,
under the same producers' names. What must hold, as the namespace is deduplicated: when all is whole
again, everything is replicated, and each cluster has every message of all three once, those of each
producer in their order.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import READY, ClusterProcess
from tests.integration.processes.geo_clusters import (
    NAMESPACE,
    addresses,
    backlogs,
    done,
    introduce,
    replicate,
)
from tests.integration.waiting import eventually
from tests.torture.evidence.load import (
    BURST,
    READ_TIMEOUT_MS,
    Producing,
    by_topic,
    read_back,
    subscribe,
)
from tests.torture.evidence.sent import Content, MessagesLost, Sent
from tests.torture.harm.links import Cut, Cutter, link, link_cuts
from tests.torture.harm.strikes import PAUSE_S_MAX, ZOOKEEPER, Striker, Targets, strikes
from tests.torture.harm.wires import Relays

NAMES = ("east", "west", "north")
PARTS = Targets(("bookie", "bookie-2"), ("broker", "broker-2"), ("proxy",))
OPTIONS = ("--hang-limit", "0")
TOPICS = 3
# Of each cluster; one of them sends batches.
PRODUCERS_A_TOPIC = 2
# One of so many strikes takes a whole cluster, the first time it is the second: even a short run,
# in which few strikes have room, loses one.
LOSS_EACH = 10
LOSS = "a whole cluster lost"
LOST_S_MIN, LOST_S_MAX = 1.0, 20.0
WHOLE_S_MAX = 180.0
# When all is whole: until everything is in all clusters.
REPLICATED_S_MAX = 300.0
DOWN = "down"


@dataclass(frozen=True, slots=True)
class GeoSiege:
    """How long at least, and how many messages a second in all clusters together."""

    seconds: float
    seed: int
    rate: int = 300
    pause_s_max: float = PAUSE_S_MAX
    cuts: tuple[Cut, ...] = tuple(Cut)
    is_deduplicated: bool = True


@dataclass(frozen=True, slots=True)
class GeoOutcome:
    """What happened; that nothing was lost or repeated is shown by the absence of an exception."""

    sent: int
    contents: Mapping[str, Mapping[str, Content]]
    strikes: Mapping[str, int]
    cuts: Mapping[str, int]
    worst_latency_s: float
    replicated_s: float
    took_s: float

    @property
    def held(self) -> dict[str, int]:
        """How many messages each cluster has."""
        return {name: sum(c.messages for c in of.values()) for name, of in self.contents.items()}

    def __str__(self) -> str:
        """A few lines for people."""
        return (
            f"{self.sent} messages sent to three clusters and confirmed in {self.took_s:.0f} s, "
            f"the slowest after {self.worst_latency_s:.1f} s; {_counted(self.strikes)}; links were "
            f"{_counted(self.cuts)}; all was replicated {self.replicated_s:.1f} s after the last "
            f"receipt; read back, each once and in order: {_counted(self.held)}"
        )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))


@contextmanager
def three_clusters(directory: Path) -> Generator[Mapping[str, ClusterProcess]]:
    """Start one of each name, which know nothing of each other yet."""
    started: dict[str, ClusterProcess] = {}

    def start(name: str) -> None:
        started[name] = ClusterProcess.up(
            directory / name,
            *(*OPTIONS, "--cluster", name),
            brokers=len(PARTS.brokers),
            bookies=len(PARTS.bookies),
            proxies=len(PARTS.proxies),
        )

    try:
        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(start, NAMES))
        yield started
    finally:
        with ExitStack() as stopping:
            for cluster in started.values():
                stopping.callback(cluster.stop)


def besiege_clusters(clusters: Mapping[str, ClusterProcess], siege: GeoSiege) -> GeoOutcome:
    """Run it on ``clusters``, which are harmed.

    Raises ``MessagesLost``, or ``AssertionError`` when something did not recover in time.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        relays = stack.enter_context(Relays(_proxies(clusters)))
        _connect(clusters, relays, is_deduplicated=siege.is_deduplicated)
        clients = {
            name: stack.enter_context(client_of(_brokers_url(cluster)))
            for name, cluster in clusters.items()
        }
        sents = records()
        loads = [
            _producing(clients[name], of_cluster, siege.rate) for name, of_cluster in sents.items()
        ]
        for client in clients.values():
            for topic in by_topic(everything(sents)):
                subscribe(client, topic).close()  # without a subscription it would be trimmed
        for load in loads:
            load.start()
        chance = Random(siege.seed)
        cuts = link_cuts(Random(siege.seed), list(clusters), siege.cuts)
        with Cutter(relays, cuts) as cutter:
            struck = _strike(clusters, siege, chance)
        for load in loads:
            load.stop()
        answered = time.monotonic()
        await_replicated(clusters, list(by_topic(everything(sents))))
        replicated_s = time.monotonic() - answered
        contents = check_everywhere(clients, everything(sents))
    return GeoOutcome(
        sent=sum(sent.sent for sent in everything(sents)),
        contents=contents,
        strikes=struck,
        cuts=cutter.counts,
        worst_latency_s=max(sent.worst_latency_s for sent in everything(sents)),
        replicated_s=replicated_s,
        took_s=time.monotonic() - begun,
    )


def records() -> dict[str, list[Sent]]:
    """What the producers of each cluster will have sent, none yet."""
    number = TOPICS * PRODUCERS_A_TOPIC
    return {
        name: [
            Sent(first + each, topic_of(each % TOPICS), each // TOPICS % 2 == 0)
            for each in range(number)
        ]
        for name, first in zip(NAMES, range(0, len(NAMES) * number, number), strict=True)
    }


def topic_of(number: int) -> str:
    """The topic of that number, of which each cluster has one."""
    return f"persistent://{NAMESPACE}/geo-{number}"


def everything(sents: Mapping[str, Sequence[Sent]]) -> list[Sent]:
    """That of all clusters together."""
    return [sent for of_cluster in sents.values() for sent in of_cluster]


def check_everywhere(
    clients: Mapping[str, Any], sents: Sequence[Sent], timeout_ms: int = READ_TIMEOUT_MS
) -> dict[str, dict[str, Content]]:
    """What each cluster holds, by cluster and topic.

    Raises ``MessagesLost`` where one of them lacks a message that any of them confirmed, has one
    twice, changed or invented, or has those of a producer in another order.
    """
    contents: dict[str, dict[str, Content]] = {}
    for name, client in clients.items():
        contents[name] = {}
        for topic, of_topic in by_topic(sents).items():
            try:
                contents[name][topic] = read_back(
                    client,
                    topic,
                    of_topic,
                    returns_max=0,
                    is_replicated=True,
                    timeout_ms=timeout_ms,
                )
            except MessagesLost as error:
                raise MessagesLost(f"in {name}: {error}") from error
    return contents


def await_replicated(clusters: Mapping[str, ClusterProcess], topics: Sequence[str]) -> None:
    """Return when every topic has nothing to replicate to any other cluster."""
    nothing = dict.fromkeys(NAMES, 0)
    for name, cluster in clusters.items():
        wanted = {other: 0 for other in nothing if other != name}
        for topic in topics:
            _, _, local_name = topic.rpartition("/")

            def left(cluster: ClusterProcess = cluster, topic: str = local_name) -> dict[str, int]:
                with suppress(AssertionError):  # the topic's owner may not be found at once
                    return backlogs(cluster, topic)
                return {}

            eventually(left, wanted.__eq__, REPLICATED_S_MAX)


def _proxies(clusters: Mapping[str, ClusterProcess]) -> dict[str, str]:
    """Where each link leads: behind the other cluster's proxy all brokers are at one address."""
    return {
        link(source, target): urlsplit(clusters[target].url_of("proxy")).netloc
        for source, target in permutations(clusters, 2)
    }


def _brokers_url(cluster: ClusterProcess) -> str:
    hosts = (urlsplit(cluster.url_of(name)).netloc for name in cluster.brokers)
    return f"pulsar://{','.join(hosts)}"


def _connect(
    clusters: Mapping[str, ClusterProcess], relays: Relays, *, is_deduplicated: bool
) -> None:
    """Have each cluster find the others by its links, and replicate to them."""
    for source, target in permutations(clusters, 2):
        url = f"pulsar://{relays.addresses[link(source, target)]}"
        record = addresses(clusters[target]) | {"brokerServiceUrl": url}
        done(clusters[source], "PUT", f"/admin/v2/clusters/{target}", record)
    introduce(clusters)
    replicate(clusters, clusters)
    for cluster in clusters.values():
        path = f"/admin/v2/namespaces/{NAMESPACE}/deduplication"
        done(cluster, "POST", path, is_deduplicated)


def _producing(client: Any, sents: Sequence[Sent], rate: int) -> Producing:
    pause_s = BURST * len(sents) * len(NAMES) / rate
    # The same names in all clusters: what one knows of a name says nothing about the others.
    names = {sent.producer: f"producer-{index}" for index, sent in enumerate(sents)}
    return Producing(client, sents, pause_s=pause_s, names=names)


def _strike(
    clusters: Mapping[str, ClusterProcess], siege: GeoSiege, chance: Random
) -> Counter[str]:
    """Strike until time is up; returns what happened how often, in all clusters."""
    strikers = {name: Striker(cluster, PARTS) for name, cluster in clusters.items()}
    plans = {
        name: strikes(
            Random(chance.random()), PARTS, pause_s_max=siege.pause_s_max, has_power_cuts=False
        )
        for name in clusters
    }
    counts: Counter[str] = Counter()
    end = time.monotonic() + siege.seconds
    for name, is_lost in turns(chance, list(clusters)):
        if is_lost:
            lose(clusters[name], chance.uniform(LOST_S_MIN, LOST_S_MAX))
            counts[LOSS] += 1
        else:
            strikers[name].strike(next(plans[name]))
        if time.monotonic() > end:
            break
    for striker in strikers.values():
        counts.update(striker.counts)
    return counts


def turns(chance: Random, names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Which cluster is struck next and whether all of it is lost, for ever.

    Each is lost as often as the others, in random order.
    """
    while True:
        for lost in chance.sample(names, len(names)):
            for number in range(LOSS_EACH):
                is_lost = number == 1
                yield lost if is_lost else chance.choice(names), is_lost


def lose(cluster: ClusterProcess, lost_s: float) -> None:
    """Kill every part of a cluster, ZooKeeper too, and bring all of them back after ``lost_s``."""
    operator = cluster.operator
    parts = [ZOOKEEPER, *(part for part in PARTS.all if part != ZOOKEEPER)]

    async def for_all(ask: Any) -> None:
        for part in parts:
            await ask(part)

    def states() -> set[str]:
        status = cluster.status()
        return {status[part]["state"] for part in parts}

    eventually(states, {READY}.__eq__, WHOLE_S_MAX)  # what does not run is not killed
    asyncio.run(for_all(lambda part: operator.kill(part, keep_down=True)))
    eventually(states, {DOWN}.__eq__, WHOLE_S_MAX)
    time.sleep(lost_s)
    asyncio.run(for_all(operator.resume))
    eventually(states, {READY}.__eq__, WHOLE_S_MAX)
