"""What can be measured, by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.performance.loads import spark
from tests.performance.loads.bookie_loads import LoadedBookie, adds, reads
from tests.performance.loads.catch_up import catch_up, catch_up_unequal
from tests.performance.loads.client_topics import client_topics
from tests.performance.loads.clients import clients, importing
from tests.performance.loads.crowds import KEY_SHARED, SHARED, crowd, many_topics
from tests.performance.loads.geo import geo
from tests.performance.loads.idle_topics import idle_topics
from tests.performance.loads.measure import Phases
from tests.performance.loads.official_client import end_to_end, synchronous, throughput
from tests.performance.loads.pulsar_perf import perf, why_left_out
from tests.performance.loads.startup import startup
from tests.performance.rivals.servers import Rival, Server

KB = 1024
LATENCY_RATE = 500


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load, and how much of it makes one round: messages, or seconds for a load with a rate.

    ``why_left_out`` tells why it cannot be run here; nothing where it can.
    """

    name: str
    run: Callable[[Server, float], Phases]
    amount: float
    warm_up: float
    why_left_out: Callable[[], str] = str


def _throughput(server: Server, amount: float, *, size: int, batched: bool) -> Phases:
    return throughput(server, messages=int(amount), size=size, batched=batched)


def _perf(name: str, amount: float, *, size: int, batched: bool) -> Scenario:
    def run(server: Server, amount: float) -> Phases:
        return perf(server, messages=int(amount), size=size, batched=batched)

    return Scenario(name, run, amount, amount / 4, why_left_out)


def _crowd(server: Server, amount: float, *, kind: object) -> Phases:
    return crowd(server, messages=int(amount), size=KB, kind=kind)


def _clients(server: Server, amount: float, *, size: int) -> Phases:
    return clients(server, messages=int(amount), size=size)


# On a server that runs.
LOADS = (
    Scenario("unbatched-1k", partial(_throughput, size=KB, batched=False), 50_000, 50_000),
    Scenario("unbatched-100", partial(_throughput, size=100, batched=False), 50_000, 50_000),
    Scenario("batched-1k", partial(_throughput, size=KB, batched=True), 200_000, 50_000),
    Scenario("batched-100", partial(_throughput, size=100, batched=True), 200_000, 50_000),
    Scenario("crowd-shared", partial(_crowd, kind=SHARED), 50_000, 20_000),
    Scenario("crowd-key-shared", partial(_crowd, kind=KEY_SHARED), 50_000, 20_000),
    Scenario(
        "many-topics",
        lambda server, amount: many_topics(server, messages=int(amount), size=KB),
        50_000,
        10_000,
    ),
    Scenario(
        "synchronous",
        lambda server, amount: synchronous(server, messages=int(amount), size=KB),
        5_000,
        1_000,
    ),
    Scenario(
        "end-to-end",
        lambda server, amount: end_to_end(server, rate=LATENCY_RATE, seconds=amount, size=KB),
        30,
        5,
    ),
    Scenario("clients-1k", partial(_clients, size=KB), 100_000, 10_000),
    Scenario("clients-100", partial(_clients, size=100), 200_000, 10_000),
    Scenario(
        "client-topics",
        lambda server, amount: client_topics(server, topics=int(amount)),
        10_000,
        200,
    ),
    Scenario("import", lambda _, __: importing(), 1, 1),
    Scenario(
        "spark",
        lambda server, amount: spark.spark(server, messages=int(amount), size=KB),
        800_000,
        1_000,  # its process warms up by itself, and ends with each round
        spark.why_left_out,
    ),
    _perf("perf-1k", 100_000, size=KB, batched=False),
    _perf("perf-100", 100_000, size=100, batched=False),
    _perf("perf-batched-1k", 400_000, size=KB, batched=True),
)
# On a new directory, with a scale: they start and stop the server themselves.
STARTS: Mapping[str, Callable[[Rival, Path, float], Phases]] = {
    "catch-up": catch_up,
    "catch-up-unequal": catch_up_unequal,
    "geo": geo,
    "idle-topics": idle_topics,
    "startup": lambda rival, directory, _: startup(rival, directory),
}
# On a bookie alone, with a scale.
BOOKIE_LOADS: Mapping[str, Callable[[LoadedBookie, float], Phases]] = {
    "bookie-adds": adds,
    "bookie-reads": reads,
}
# Those that cost more where nothing is warm, as Java's compiler is not: their first round is a
# rehearsal. The others begin cold by their nature, or have rehearsals of their own.
REHEARSED = frozenset({"bookie-adds"})
NAMES = (*(load.name for load in LOADS), *STARTS, *BOOKIE_LOADS)


def named(beginnings: str) -> frozenset[str]:
    """The scenarios whose names begin with one of the words, which commas separate.

    Raises ``ValueError`` for a word no name begins with.
    """
    found: set[str] = set()
    for beginning in beginnings.split(","):
        names = {name for name in NAMES if name.startswith(beginning)}
        if not names:
            raise ValueError(f"{beginning} is not known; known are {', '.join(NAMES)}")
        found |= names
    return frozenset(found)
