"""The second ordeal: load on several bookies and a broker, any of which may go at any time; and on
a cluster of several brokers behind proxies.

What must hold: everything that was confirmed is read back, each producer's messages in their order,
once everything is healthy, and the same again after the whole cluster was stopped and started;
and the subscriptions are given all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import ClusterProcess, StandaloneProcess
from tests.torture.evidence.journal import Journal, histories_of
from tests.torture.evidence.load import (
    CONFIRM_S_MAX,
    READ_TIMEOUT_MS,
    TOPICS,
    Load,
    drain,
    read_back,
)
from tests.torture.evidence.owners import OwnerChecker
from tests.torture.evidence.sent import Content, MessagesLost, Sent
from tests.torture.evidence.witness import Witness
from tests.torture.harm.strikes import PAUSE_S_MAX, Striker, Targets, strikes
from tests.torture.harm.wires import Wires

BOOKIES = ("bookie", "bookie-2", "bookie-3", "bookie-4")
# Half of the pauses are longer than what the supervisor puts up with.
HANG_LIMIT_S = PAUSE_S_MAX / 2
OPTIONS = ("--num-bookies", str(len(BOOKIES)), "--hang-limit", str(HANG_LIMIT_S))
STANDALONE_PARTS = Targets(BOOKIES)
# Several brokers and proxies. A part that stands still is left alone there, however long: the
# others have taken its topics over when it wakes up.
CLUSTER_PARTS = Targets(BOOKIES, ("broker", "broker-2", "broker-3"), ("proxy", "proxy-2"))
CLUSTER_OPTIONS = ("--hang-limit", "0")
CLUSTER_TOPICS = 6
# How often a producer may go back for one strike to send again: when its broker is lost, and when a
# bookie's loss is noticed late, the broker not yet being whole when it comes back.
RETURNS_A_STRIKE_MAX = 3
# So many strikes are named in the report, those after which it took longest to recover.
SLOWEST = 5
# What is run instead of a cluster where brokers are parted from ZooKeeper, and instead of a
# standalone where there are power cuts.
WIRED = ("tests.torture.harm.wires",)
FRAGILE = ("tests.integration.processes.standalone_with", "tests.torture.harm.fragile_bookie")

# Starts the cluster on the same data, the first time and again.
Start = Callable[[], StandaloneProcess]


@dataclass(frozen=True, slots=True)
class Siege:
    """How long at least, how many messages a second, which faults.

    Power cuts need bookies that ``FRAGILE`` runs.
    """

    seconds: float
    seed: int
    rate: int = 1000
    pause_s_max: float = PAUSE_S_MAX
    has_power_cuts: bool = False
    parts: Targets = STANDALONE_PARTS
    topics: int = TOPICS
    # How long a reader waits for the next message of a cluster that is healthy.
    read_timeout_ms: int = READ_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened; that nothing was lost is shown by the absence of an exception."""

    sent: int
    confirmed: int
    contents: Mapping[str, Content]
    strikes: Mapping[str, int]
    worst_latency_s: float
    recoveries: Sequence[Recovery]
    # How often nothing was owned by two brokers, where there are several.
    owner_checks: int
    # What clients of ours were told, in which nothing contradicts the rest.
    heard: str
    lost_bytes: int
    took_s: float

    def __str__(self) -> str:
        """A few lines for people."""
        struck = ", ".join(f"{what} {count} times" for what, count in sorted(self.strikes.items()))
        messages = sum(content.messages for content in self.contents.values())
        repeats = sum(content.repeats for content in self.contents.values())
        slow = sorted(self.recoveries, key=lambda each: each.took_s, reverse=True)
        return (
            f"{self.sent} messages sent and {self.confirmed} confirmed in {self.took_s:.0f} s, the "
            f"slowest after {self.worst_latency_s:.1f} s; {struck}; {self.lost_bytes} bytes that "
            f"were not synced were thrown away; {messages} messages read back, {repeats} of them "
            "repeats, the same after a restart; all that was confirmed is there, in order; "
            f"nothing had two owners at {self.owner_checks} looks; histories of {self.heard} hold; "
            "until all producers had receipts again after a strike: "
            f"{median(each.took_s for each in slow):.1f} s in the median, "
            f"most after {'; '.join(map(str, slow[:SLOWEST]))}"
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long after a strike every producer had a receipt of what it sent after it."""

    strike: str
    took_s: float

    def __str__(self) -> str:
        """A few words for people."""
        return f"{self.strike} {self.took_s:.1f} s"


def recoveries(struck: Sequence[tuple[float, str]], sents: Sequence[Sent]) -> list[Recovery]:
    """From each strike to the first receipt of the producer that had to wait longest for one."""
    found: list[Recovery] = []
    for moment, what in struck:
        receipts = [
            receipt for sent in sents if (receipt := sent.first_receipt_after(moment)) is not None
        ]
        if receipts:
            found.append(Recovery(what, max(receipts) - moment))
    return found


def besiege(start: Start, siege: Siege, wires: Wires | None = None) -> Outcome:
    """Run it on the cluster that ``start`` starts, which is stopped in between.

    With ``wires``, which its brokers must have, they are parted from ZooKeeper as well.

    Raises ``MessagesLost``, ``InvariantViolated`` for what our clients were told, or
    ``AssertionError`` when something did not recover in time.
    """
    begun = time.monotonic()
    cluster = start()
    striker = Striker(cluster, siege.parts, wires)
    owners = OwnerChecker(cluster) if isinstance(cluster, ClusterProcess) else None
    journal = Journal()
    with client_of(url_for_clients(cluster)) as client:
        load = Load(client, siege.rate, siege.topics)
        load.start()
        with Witness(url_for_clients(cluster), journal):
            _strike(striker, siege, owners, has_partitions=wires is not None)
            load.stop()
        returns_max = RETURNS_A_STRIKE_MAX * striker.strikes
        contents = _read_all(client, load, siege, returns_max)
    cluster.stop()
    cluster = start()
    with client_of(url_for_clients(cluster)) as client, Witness(url_for_clients(cluster), journal):
        again = _read_all(client, load, siege, returns_max)
        for topic, sents in load.topics.items():
            drain(client, topic, sents)
    if again != contents:
        raise MessagesLost(f"a restart turned {contents} into {again}")
    histories = histories_of(journal, owners.polls if owners else None)
    histories.check()
    assert owners is None or owners.topics, "no topic was seen with its owner"
    worst_latency_s = max(sent.worst_latency_s for sent in load.all_sent)
    assert worst_latency_s <= CONFIRM_S_MAX, f"a send was confirmed after {worst_latency_s:.1f} s"
    return Outcome(
        sent=sum(sent.sent for sent in load.all_sent),
        confirmed=sum(sum(sent.confirmed) for sent in load.all_sent),
        contents=contents,
        strikes=striker.counts,
        worst_latency_s=worst_latency_s,
        recoveries=recoveries(striker.struck, load.all_sent),
        owner_checks=owners.checks if owners else 0,
        heard=str(histories),
        lost_bytes=striker.lost_bytes,
        took_s=time.monotonic() - begun,
    )


def url_for_clients(cluster: StandaloneProcess) -> str:
    """All proxies, where there are several: clients use another while one is gone."""
    return cluster.proxies_url if isinstance(cluster, ClusterProcess) else cluster.service_url


def _strike(
    striker: Striker, siege: Siege, owners: OwnerChecker | None, *, has_partitions: bool
) -> None:
    end = time.monotonic() + siege.seconds
    if owners is not None:
        owners.check()
    for strike in strikes(
        Random(siege.seed),
        siege.parts,
        pause_s_max=siege.pause_s_max,
        has_power_cuts=siege.has_power_cuts,
        has_partitions=has_partitions,
    ):
        striker.strike(strike)
        if owners is not None:
            owners.check()
        if time.monotonic() > end:
            return


def _read_all(client: object, load: Load, siege: Siege, returns_max: int) -> dict[str, Content]:
    return {
        topic: read_back(
            client, topic, sents, returns_max=returns_max, timeout_ms=siege.read_timeout_ms
        )
        for topic, sents in load.topics.items()
    }
