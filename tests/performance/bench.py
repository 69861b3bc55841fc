"""Runs scenarios in rounds: the rivals take turns, so that all of them see the same machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.performance.figures import Rounds
from tests.performance.loads.bookie_loads import loaded
from tests.performance.rivals.bookies import bookie_of, started_zookeeper
from tests.performance.rivals.processes import machine_busy_s
from tests.performance.rivals.servers import Geminga, Pulsar, Server, started, wait_until_ready
from tests.performance.scenarios import BOOKIE_LOADS, LOADS, REHEARSED, STARTS, Scenario

QUIET_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run of the benchmark does; ``rivals`` begin with ours."""

    geminga: Geminga
    peers: Sequence[Pulsar]
    only: frozenset[str]
    rounds: int
    scale: float
    quiet_cores: float
    directory: Path

    @property
    def rivals(self) -> Sequence[Geminga | Pulsar]:
        """All that is measured, ours first."""
        return (self.geminga, *self.peers)


def run(plan: Plan, results: dict[str, Rounds]) -> None:
    """Put all rounds of all scenarios into ``results``, by the rival's name."""
    loads = [load for load in LOADS if load.name in plan.only]
    for load in loads:
        if load.why_left_out():
            _say(f"{load.name} is left out: {load.why_left_out()}")
    if loads := [load for load in loads if not load.why_left_out()]:
        _run_loads(plan, loads, results)
    _run_starts(plan, results)
    if any(name in plan.only for name in BOOKIE_LOADS):
        _run_bookie_loads(plan, results)


def _run_loads(plan: Plan, loads: Sequence[Scenario], results: dict[str, Rounds]) -> None:
    """Start all rivals, then let them take turns; who waits is idle, and costs next to nothing."""
    with ExitStack() as stack:
        servers: list[tuple[str, Server]] = []
        for rival in plan.rivals:
            server = stack.enter_context(started(rival, plan.directory / rival.name))
            _say(f"{rival.name} was ready after {wait_until_ready(rival, server):.2f} s")
            servers.append((rival.name, server))
        for load in loads:
            for name, server in servers:
                _say(f"{load.name}: {name} warms up")
                load.run(server, min(load.warm_up, load.amount * plan.scale))
            for number in range(plan.rounds):
                for name, server in servers:
                    _begin(plan, load.name, name, number)
                    phases = load.run(server, load.amount * plan.scale)
                    results[name].setdefault(load.name, []).append(phases)
        for name, server in servers:
            after_loads = {"after loads": {"pss_mb": server.program.processes.pss_mb()}}
            results[name]["memory"] = [after_loads]


def _run_starts(plan: Plan, results: dict[str, Rounds]) -> None:
    for scenario, measure in STARTS.items():
        if scenario not in plan.only:
            continue
        for number in range(plan.rounds):
            for rival in plan.rivals:
                _begin(plan, scenario, rival.name, number)
                directory = plan.directory / f"{rival.name}-{scenario}-{number}"
                phases = measure(rival, directory, plan.scale)
                results[rival.name].setdefault(scenario, []).append(phases)


def _run_bookie_loads(plan: Plan, results: dict[str, Rounds]) -> None:
    """All rivals' bookies on one ZooKeeper, which has nothing to do meanwhile."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(
            started_zookeeper(plan.geminga.executable, plan.directory / "zookeeper")
        )
        bookies = [
            (
                rival.name,
                stack.enter_context(
                    loaded(bookie_of(rival), plan.directory / f"{rival.name}-bookie", zookeeper)
                ),
            )
            for rival in plan.rivals
        ]
        for scenario, measure in BOOKIE_LOADS.items():
            if scenario not in plan.only:
                continue
            if scenario in REHEARSED:
                for name, bookie in bookies:
                    _say(f"{scenario}: {name} warms up")
                    measure(bookie, plan.scale)
            for number in range(plan.rounds):
                for name, bookie in bookies:
                    _begin(plan, scenario, name, number)
                    phases = measure(bookie, plan.scale)
                    results[name].setdefault(scenario, []).append(phases)


def _begin(plan: Plan, scenario: str, name: str, number: int) -> None:
    """Say which round begins, when all is as quiet as was asked for."""
    _say(f"{scenario}: {name}, round {number + 1}")
    deadline = time.perf_counter() + QUIET_S_MAX
    while plan.quiet_cores and time.perf_counter() < deadline:
        before = machine_busy_s()
        time.sleep(1)
        if machine_busy_s() - before <= plan.quiet_cores:
            return


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
