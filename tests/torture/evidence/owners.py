"""Looks from outside whether two brokers serve the same at a time.

There are three witnesses: what each broker reports to own (``/admin/v2/broker-stats/load-report``),
the topics that it has open (its metrics name them), and the owners' nodes in ZooKeeper. They are
asked one after the other, and ownership moves; so only what two brokers claim again and again, in
turns, is a double owner, and while it is looked for the cluster has some seconds to settle. It is
looked for between strikes, when every broker reaches ZooKeeper: one that does not may well take
itself for the owner of what another has, and is kept by the ledgers from confirming anything.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import combinations

from tests.integration.processes.cluster_process import ClusterProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.records.cluster.ownership import OWNERSHIP_PATH, BundleOwner
from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import Coordination, CoordinationError, NodeMissing, NodeStat
from geminga_server.zookeeper.session import ZooKeeper

LOAD_REPORT_PATH = "/admin/v2/broker-stats/load-report"
REGISTRATIONS_PATH = "/loadbalance/brokers"
TOPIC_LABEL = re.compile(r'[{,]topic="([^"]+)"')
# A broker that wakes up, or finds ZooKeeper again, has this long to give up what others took over.
SETTLE_S_MAX = 30.0
METRICS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Claims:
    """What one broker said to serve: bundles (``tenant/namespace/range``) and topics, by name."""

    bundles: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()

    def __and__(self, other: Claims) -> Claims:
        return Claims(self.bundles & other.bundles, self.topics & other.topics)

    @property
    def all(self) -> frozenset[str]:
        """Everything that only one broker may claim."""
        return self.bundles | self.topics


@dataclass(frozen=True, slots=True)
class Node:
    """A bundle's node in ZooKeeper: the broker by its URL, the session that made it, and when."""

    broker: str
    session: int
    generation: int
    # Where clients reach it.
    url: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What all brokers claim, by their REST addresses; ZooKeeper's owners of bundles, and the
    sessions of the brokers that are registered, by the same addresses."""

    claims: Mapping[str, Claims]
    nodes: Mapping[str, Node] = field(default_factory=dict[str, Node])
    sessions: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Poll:
    """ZooKeeper's owners of all bundles, each read at some moment of that time."""

    began_s: float
    ended_s: float
    nodes: Mapping[str, Node]


def double_owners(rounds: Sequence[View]) -> list[str]:
    """What is wrong with two views, taken one after the other: one sentence for each finding.

    In every round each broker is asked once, in the same order. What A and B both claim in both
    rounds was A's, B's, A's and B's again: not moved, but owned twice.
    """
    first, last = rounds
    lasting = {
        broker: first.claims.get(broker, Claims()) & claims
        for broker, claims in last.claims.items()
    }
    found = [
        f"{name} is served by {one} and by {other}"
        for one, other in combinations(lasting, 2)
        for name in sorted(lasting[one].all & lasting[other].all)
    ]
    for broker, claims in lasting.items():
        for bundle in sorted(claims.bundles):
            # Nodes that were replaced between the rounds are on their way.
            node = last.nodes.get(bundle)
            if node != first.nodes.get(bundle):
                continue
            if node is None:
                found.append(f"{bundle} is served by {broker}, and has no node in ZooKeeper")
            elif node.broker != broker:
                found.append(f"{bundle} is served by {broker}, and is {node.broker}'s in ZooKeeper")
            elif broker in last.sessions and node.session != last.sessions[broker]:
                found.append(f"{bundle} is served by {broker}, and its node is of another session")
    return found


class OwnerChecker:
    """Asks the brokers and the ZooKeeper of ``cluster``, and remembers the owners' generations.

    ``checks`` is how often nothing was wrong, ``topics`` how many were open at once, at most.
    """

    def __init__(self, cluster: ClusterProcess) -> None:
        self.checks = self.topics = 0
        # What ZooKeeper said, whenever it was asked.
        self.polls: list[Poll] = []
        self._cluster = cluster
        self._generations: dict[str, Node] = {}

    def check(self) -> None:
        """Raise ``AssertionError`` where two brokers go on to own the same, where a broker or
        ZooKeeper does not answer, or where a later owner of a bundle has no higher generation."""
        eventually(self._findings, lambda found: not found, SETTLE_S_MAX)
        self.checks += 1

    def _findings(self) -> list[str]:
        try:
            views = [self._view(), self._view()]
        except (OSError, ValueError, CoordinationError) as error:  # what was struck begins
            return [repr(error)]
        for bundle, node in views[-1].nodes.items():
            before = self._generations.get(bundle, node)
            if before.session != node.session:
                assert node.generation > before.generation, f"{bundle}: {before}, then {node}"
            self._generations[bundle] = node
        self.topics = max(self.topics, sum(len(said.topics) for said in views[-1].claims.values()))
        return double_owners(views)

    def _view(self) -> View:
        endpoints = self._cluster.endpoints
        brokers = [endpoints[name]["web"] for name in self._cluster.brokers]
        claims = {broker: claims_of(broker) for broker in brokers}
        began_s = time.monotonic()
        nodes, sessions = asyncio.run(_owners(endpoints["zookeeper"]["address"]))
        self.polls.append(Poll(began_s, time.monotonic(), nodes))
        return View(claims, nodes, sessions)


def claims_of(broker: str) -> Claims:
    """What the broker at that address says to serve. Raises ``OSError``, ``ValueError``."""
    status, report = rest(broker, "GET", LOAD_REPORT_PATH)
    if status != HTTPStatus.OK:
        raise OSError(f"{broker} answered {status}")
    with urllib.request.urlopen(f"{broker}/metrics/", timeout=METRICS_TIMEOUT_S) as answer:
        topics = frozenset(TOPIC_LABEL.findall(answer.read().decode()))
    return Claims(frozenset(report["bundles"]), topics)


async def _owners(hosts: str) -> tuple[dict[str, Node], dict[str, int]]:
    """The owners of all bundles, and the sessions of the registered brokers by their addresses."""
    async with ZooKeeper(hosts, SystemClock(), makes_chroot=False) as zookeeper:
        nodes: dict[str, Node] = {}
        for bundle in [
            f"{tenant}/{namespace}/{bundle}"
            for tenant in await zookeeper.children(OWNERSHIP_PATH)
            for namespace in await zookeeper.children(f"{OWNERSHIP_PATH}/{tenant}")
            for bundle in await zookeeper.children(f"{OWNERSHIP_PATH}/{tenant}/{namespace}")
        ]:
            found = await _read(zookeeper, f"{OWNERSHIP_PATH}/{bundle}")
            if found is not None:
                value, stat = found
                owner = BundleOwner.decode(value)
                nodes[bundle] = Node(
                    str(owner.http_url),
                    stat.ephemeral_owner,
                    stat.created_zxid,
                    str(owner.native_url),
                )
        sessions: dict[str, int] = {}
        for broker in await zookeeper.children(REGISTRATIONS_PATH):
            found = await _read(zookeeper, f"{REGISTRATIONS_PATH}/{broker}")
            if found is not None:
                sessions[f"http://{broker}"] = found[1].ephemeral_owner
        return nodes, sessions


async def _read(zookeeper: Coordination, path: str) -> tuple[bytes, NodeStat] | None:
    """A node; None where it has just gone."""
    try:
        return await zookeeper.get(path)
    except NodeMissing:
        return None
