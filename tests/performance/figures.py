"""What is reported: the figures with their units and budgets, in the order of the table.

A budget has two marks: what must be reached on a machine with two cores, and what is aimed at. It
was written beside what Apache Pulsar took on the same machine: on another one, or a busy one, the
ratio to a Pulsar of the same run says more than the figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tests.performance.loads.measure import Phases

# scenario -> one entry for each round, in the order of the rounds
Rounds = dict[str, list[Phases]]


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds in the unit of the figure: upper ones, or lower ones for what should be much."""

    must: float
    aims_at: float | None = None
    # What Apache Pulsar 4.0.6 took where the budget was written.
    peer: float | None = None
    is_lower_bound: bool = False

    def verdict(self, value: float) -> str:
        """Which of the marks ``value`` reaches."""
        if self.aims_at is not None and self._is_reached(self.aims_at, value):
            return "aim reached"
        return "met" if self._is_reached(self.must, value) else "MISSED"

    def _is_reached(self, mark: float, value: float) -> bool:
        return value >= mark if self.is_lower_bound else value <= mark

    @property
    def ratio_max(self) -> float | None:
        """What ``must`` is in parts of the peer's figure."""
        return None if self.peer is None else self.must / self.peer


def at_least(must: float) -> Budget:
    """A lower bound."""
    return Budget(must, is_lower_bound=True)


@dataclass(frozen=True, slots=True)
class Reported:
    """One line of the table: where the figure comes from, and its bounds."""

    title: str
    scenario: str
    phase: str
    figure: str
    unit: str
    budget: Budget | None = None

    def values(self, rounds: Rounds) -> list[float]:
        """The figure in each round; empty where the scenario, or this phase of it, was not run, or
        where the server does not tell."""
        of_phase = [each.get(self.phase, {}) for each in rounds.get(self.scenario, [])]
        return [each[self.figure] for each in of_phase if self.figure in each]

    def other_cores(self, rounds: Rounds) -> float | None:
        """Cores that others kept busy meanwhile, the median; None where it was not measured."""
        seen = [
            phases[self.phase]["other_cores"]
            for phases in rounds.get(self.scenario, [])
            if "other_cores" in phases.get(self.phase, {})
        ]
        return median(seen) if seen else None


def _throughput(
    scenario: str, title: str, publish: Budget | None = None, deliver: Budget | None = None
) -> Iterator[Reported]:
    yield Reported(f"publish {title}", scenario, "publish", "cpu_us", "us CPU", publish)
    yield Reported("", scenario, "publish", "per_s", "/s")
    yield Reported(f"deliver + ack {title}", scenario, "deliver", "cpu_us", "us CPU", deliver)
    yield Reported("", scenario, "deliver", "per_s", "/s")


def _bookie_adds() -> Iterator[Reported]:
    scenario = "bookie-adds"
    yield Reported(
        "bookie: add 1 KB, pipeline full", scenario, "full", "cpu_us", "us CPU", Budget(8)
    )
    yield Reported("", scenario, "full", "per_s", "/s")
    title = "bookie: add at 20,000/s"
    yield Reported(title, scenario, "paced", "per_sync", "a sync", at_least(20))
    yield Reported("", scenario, "paced", "cpu_us", "us CPU")
    yield from _latency("", scenario, "paced")
    yield from _latency("bookie: one add at a time", scenario, "single")


def _bookie_reads() -> Iterator[Reported]:
    scenario = "bookie-reads"
    for title, phase, budget in (
        ("bookie: read batches, 100 KB", "sequential", at_least(200)),
        ("bookie: read 1 KB, by hundreds", "neighbours", None),
    ):
        yield Reported(title, scenario, phase, "mb_per_core", "MB/s a core", budget)
        yield Reported("", scenario, phase, "mb_per_s", "MB/s")
        yield Reported("", scenario, phase, "cpu_us", "us CPU")
    yield from _latency("bookie: one random read of 1 M", scenario, "random")
    yield Reported("", scenario, "random", "cpu_us", "us CPU")
    yield Reported("bookie: exec to read of 1 M", scenario, "restart", "ready_s", "s", Budget(2))
    yield Reported("", scenario, "restart", "cpu_s", "s CPU")
    yield Reported("bookie: the same, killed", scenario, "killed", "ready_s", "s")


def _latency(title: str, scenario: str, phase: str) -> Iterator[Reported]:
    yield Reported(title, scenario, phase, "p50_ms", "ms p50")
    yield Reported("", scenario, phase, "p99_ms", "ms p99")


def _catch_up(scenario: str, title: str, volume: Budget | None = None) -> Iterator[Reported]:
    yield Reported(title, scenario, "read", "mb_per_core", "MB/s a core", volume)
    yield Reported("", scenario, "read", "cpu_us", "us CPU")
    yield Reported("", scenario, "read", "per_s", "/s")
    yield Reported("", scenario, "read", "read_ratio", "bytes read a byte sent", Budget(1.5, 1.1))


def _idle_topics() -> Iterator[Reported]:
    scenario = "idle-topics"
    for title, phase, cpu_us, size_bytes in (
        ("make an idle topic", "made", None, None),
        ("load it, unloaded in order", "loaded", Budget(1_000), None),
        ("load it, its broker killed", "killed", None, None),
        ("load it, killed while idle", "again", Budget(1_000), Budget(10_000)),
    ):
        yield Reported(title, scenario, phase, "cpu_us", "us CPU of the broker", cpu_us)
        yield Reported("", scenario, phase, "per_s", "/s")
        yield Reported("", scenario, phase, "bytes", "bytes of the broker", size_bytes)
        yield Reported("", scenario, phase, "broker_mb", "MB PSS in all")


def _geo() -> Iterator[Reported]:
    """Two clusters on this machine; 1 KB messages."""
    for kind in ("batched", "single"):
        title, replicate = f"replicate a backlog, {kind}", f"{kind} replicate"
        yield Reported(title, "geo", replicate, "cpu_us", "us CPU of the sender")
        yield Reported("", "geo", replicate, "times_delivery", "times a delivery", Budget(1.2))
        yield Reported("", "geo", replicate, "per_s", "/s")
    for title, phase, figure, unit, budget in (
        ("replicate at half the rate", "steady", "per_s", "/s", None),
        ("", "steady", "backlog_max", "entries left, the most", None),
        ("", "steady", "backlog_end", "entries left, in the end", None),
        ("", "steady", "left_s", "s to the end of them", Budget(1)),
    ):
        yield Reported(title, "geo", phase, figure, unit, budget)
    yield Reported("receipt to the other cluster", "geo", "lag", "p50_ms", "ms p50")
    yield Reported("", "geo", "lag", "p99_ms", "ms p99", Budget(10))
    yield from _latency("end to end in one of the two", "geo", "local")


def _clients(scenario: str, title: str, one_by_one: float) -> Iterator[Reported]:
    """The client library, in CPU of its process, which must not cost more than the official one."""
    for work, phase, times_official in (
        ("publish", "publish", 2.0),
        ("receive + ack", "receive", one_by_one),
        ("receive_many + ack", "receive_many", 1.0),
    ):
        yield Reported(f"client: {work} {title}", scenario, phase, "cpu_us", "us CPU of the client")
        yield Reported("", scenario, phase, "official_cpu_us", "us CPU of the official one")
        unit = "times as cheap"
        yield Reported("", scenario, phase, "times_official", unit, at_least(times_official))


def _client_topics() -> Iterator[Reported]:
    """Of one client that has very many topics; a topic has one of each."""
    scenario = "client-topics"
    for title, phase, budget in (
        ("client: open a producer", "producer", Budget(16_000)),
        ("client: open a consumer", "consumer", Budget(16_000)),
        ("client: a message to each topic", "message", None),
    ):
        yield Reported(title, scenario, phase, "cpu_us", "us CPU of the client")
        yield Reported("", scenario, phase, "per_s", "/s")
        if budget is not None:
            yield Reported("", scenario, phase, "bytes", "bytes of the client", budget)
    yield Reported("", scenario, "message", "connections", "connections", Budget(1))


def _spark() -> Iterator[Reported]:
    """Spark's source and sink, 1 KB, each beside what it cannot do without or stands in for."""
    for title, phase, figure, unit, budget in (
        ("Spark: read, one task", "read", "of_arrow", "of our Arrow read", at_least(0.8)),
        ("", "read", "cpu", "of its CPU", None),
        ("Spark: read, two tasks", "read two", "of_official", "of official loop", at_least(3)),
        ("", "read two", "of_columns", "of it with all columns", None),
        ("", "read two", "splits", "of one task", at_least(1.5)),
        ("Spark: stream, steady", "stream", "of_batch", "of batch, row limit", at_least(0.7)),
        ("", "stream bytes", "of_batch", "of batch, byte limit", at_least(0.7)),
        ("Spark: the least micro-batch", "floor", "p50_ms", "ms p50", Budget(200)),
        ("Spark: write, one task", "sink", "of_producer", "of our producer", at_least(0.6)),
        ("", "sink", "cpu", "of its CPU", None),
    ):
        yield Reported(title, "spark", phase, figure, unit, budget)


REPORTED: tuple[Reported, ...] = (
    *_throughput("unbatched-1k", "1 KB unbatched", Budget(16, 11, 22.6), Budget(12, 5.8, 54)),
    *_throughput("unbatched-100", "100 B unbatched", Budget(14, 8.8, 20.8), Budget(12, 5.8, 54)),
    *_throughput("batched-1k", "1 KB batched", Budget(4.4, 3, 6.0), Budget(2.6, 1.5, 3.6)),
    *_throughput("batched-100", "100 B batched", Budget(0.9, 0.6, 1.2), Budget(0.4, 0.2, 0.5)),
    *_throughput("perf-1k", "1 KB unbatched, pulsar-perf"),
    *_throughput("perf-100", "100 B unbatched, pulsar-perf"),
    *_throughput("perf-batched-1k", "1 KB batched, pulsar-perf"),
    *_throughput("crowd-shared", "10 x 10, Shared"),
    *_throughput("crowd-key-shared", "10 x 10, Key_Shared"),
    Reported("publish to ack, 1,000 topics", "many-topics", "pass", "cpu_us", "us CPU"),
    Reported("", "many-topics", "pass", "per_s", "/s"),
    Reported(
        "one synchronous send", "synchronous", "send", "p50_ms", "ms p50", Budget(0.8, 0.4, 1.62)
    ),
    Reported("", "synchronous", "send", "p99_ms", "ms p99", Budget(2.0, 1.0, 2.0)),
    Reported("", "synchronous", "send", "cpu_us", "us CPU"),
    Reported("receipt at 500/s", "end-to-end", "receipt", "p50_ms", "ms p50"),
    Reported("", "end-to-end", "receipt", "p99_ms", "ms p99"),
    Reported(
        "end to end at 500/s", "end-to-end", "arrival", "p50_ms", "ms p50", Budget(1.2, 0.8, 7.07)
    ),
    Reported("", "end-to-end", "arrival", "p99_ms", "ms p99", Budget(4.0, 2.0, 12.5)),
    Reported("", "end-to-end", "arrival", "cpu_us", "us CPU"),
    *_clients("clients-1k", "1 KB batched", 1.0),
    *_clients("clients-100", "100 B batched", 0.6),
    *_client_topics(),
    *_spark(),
    Reported("client: import geminga", "import", "import", "cpu_ms", "ms CPU", Budget(150)),
    *_catch_up("catch-up", "read a backlog", at_least(200)),
    *_catch_up("catch-up-unequal", "the same, unequal batches"),
    *_geo(),
    *_idle_topics(),
    Reported("memory after the loads", "memory", "after loads", "pss_mb", "MB PSS"),
    Reported("exec to READY", "startup", "startup", "ready_s", "s"),
    Reported(
        "exec to first acknowledged",
        "startup",
        "startup",
        "first_message_s",
        "s",
        Budget(2.0, 1.2, 8.6),
    ),
    Reported("", "startup", "startup", "cpu_until_first_message_s", "s CPU"),
    Reported(
        "memory idle, everything", "startup", "startup", "idle_pss_mb", "MB PSS", Budget(260, 180)
    ),
    Reported("CPU idle", "startup", "startup", "idle_cpu_percent", "% of a core"),
    Reported("stop", "startup", "startup", "stop_s", "s", Budget(5.0)),
    *_bookie_adds(),
    *_bookie_reads(),
)
