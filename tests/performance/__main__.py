"""Measure a standalone under the official client; beside a real Apache Pulsar where one is given.

    python -m tests.performance                   our figures against their budgets
    python -m tests.performance --peer pulsar     and against PULSAR_HOME's Apache Pulsar
    python -m tests.performance --only unbatched-1k --rounds 5 --scale 0.5

Each scenario begins with a round that does not count; then the rivals take turns, so that both see
the same machine. The figures are medians of the rounds, the spread is beside them, and so is how
many cores others kept busy meanwhile: a table with noise in it should be measured again.
Publishing costs the client more than the server: rates are the client's limit, CPU is the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.performance.figures import Rounds
from tests.performance.loads import LoadFailed, Phases, end_to_end, synchronous, throughput
from tests.performance.processes import machine_busy_s
from tests.performance.servers import (
    Magnetar,
    Pulsar,
    Rival,
    Server,
    ServerFailed,
    started,
    wait_until_ready,
)
from tests.performance.startup import startup
from tests.performance.table import table

KB = 1024
LATENCY_RATE = 500
QUIET_S_MAX = 60.0
# A disk: where temporary files live in memory, a sync costs nothing.
DIRECTORY = Path("/var/tmp")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load, and how much of it makes one round: messages, or seconds for a load with a rate."""

    name: str
    run: Callable[[Server, float], Phases]
    amount: float
    warm_up: float


def _throughput(server: Server, amount: float, *, size: int, batched: bool) -> Phases:
    return throughput(server, messages=int(amount), size=size, batched=batched)


SCENARIOS = (
    Scenario("unbatched-1k", partial(_throughput, size=KB, batched=False), 50_000, 50_000),
    Scenario("unbatched-100", partial(_throughput, size=100, batched=False), 50_000, 50_000),
    Scenario("batched-1k", partial(_throughput, size=KB, batched=True), 200_000, 50_000),
    Scenario("batched-100", partial(_throughput, size=100, batched=True), 200_000, 50_000),
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
)
STARTUP = "startup"
NAMES = (*(scenario.name for scenario in SCENARIOS), STARTUP)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run of the benchmark does."""

    rivals: Sequence[Rival]
    only: frozenset[str]
    rounds: int
    scale: float
    quiet_cores: float
    directory: Path


def main() -> int:
    """Measure, print the table, write the results where asked."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="magnetar-bench-", dir=options.directory) as directory:
        plan = Plan(
            rivals=_rivals(options),
            only=frozenset(options.only.split(",")),
            rounds=options.rounds,
            scale=options.scale,
            quiet_cores=options.quiet,
            directory=Path(directory),
        )
        results: dict[str, Rounds] = {rival.name: {} for rival in plan.rivals}
        failure: Exception | None = None
        try:
            run(plan, results)
        except (ServerFailed, LoadFailed) as failed:
            failure = failed  # what was measured until then is shown all the same
    facts = _facts(plan)
    print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()) + "\n")
    print(table(results))
    if options.out is not None:
        options.out.write_text(json.dumps({"facts": facts, "results": results}, indent=1) + "\n")
    if failure is not None:
        print(f"\n{type(failure).__name__}: {failure}", file=sys.stderr)
    return 0 if failure is None else 1


def run(plan: Plan, results: dict[str, Rounds]) -> None:
    """Put all rounds of all scenarios into ``results``, by the rival's name."""
    if plan.only - {STARTUP}:
        _run_loads(plan, results)
    if STARTUP in plan.only:
        for number in range(plan.rounds):
            for rival in plan.rivals:
                _say(f"{STARTUP}: {rival.name}, round {number + 1}")
                _wait_until_quiet(plan)
                directory = plan.directory / f"{rival.name}-{STARTUP}-{number}"
                results[rival.name].setdefault(STARTUP, []).append(startup(rival, directory))


def _run_loads(plan: Plan, results: dict[str, Rounds]) -> None:
    """Start all rivals, then let them take turns; who waits is idle, and costs next to nothing."""
    with ExitStack() as stack:
        servers: list[tuple[str, Server]] = []
        for rival in plan.rivals:
            server = stack.enter_context(started(rival, plan.directory / rival.name))
            _say(f"{rival.name} was ready after {wait_until_ready(rival, server):.2f} s")
            servers.append((rival.name, server))
        for scenario in SCENARIOS:
            if scenario.name not in plan.only:
                continue
            for name, server in servers:
                _say(f"{scenario.name}: {name} warms up")
                scenario.run(server, min(scenario.warm_up, scenario.amount * plan.scale))
            for number in range(plan.rounds):
                for name, server in servers:
                    _say(f"{scenario.name}: {name}, round {number + 1}")
                    _wait_until_quiet(plan)
                    phases = scenario.run(server, scenario.amount * plan.scale)
                    results[name].setdefault(scenario.name, []).append(phases)
        for name, server in servers:
            after_loads = {"after loads": {"pss_mb": server.processes.pss_mb()}}
            results[name]["memory"] = [after_loads]


def _wait_until_quiet(plan: Plan) -> None:
    """Where asked for: wait until nothing, servers included, uses more than so many cores."""
    deadline = time.perf_counter() + QUIET_S_MAX
    while plan.quiet_cores and time.perf_counter() < deadline:
        before = machine_busy_s()
        time.sleep(1)
        if machine_busy_s() - before <= plan.quiet_cores:
            return


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def _facts(plan: Plan) -> dict[str, object]:
    """What a reader of the results must know about how they were made."""
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "cores": os.cpu_count(),
        "Linux": platform.release(),
        "Python": platform.python_version(),
        "pulsar-client": version("pulsar-client"),
        "rounds": plan.rounds,
        "scale": plan.scale,
    }


def _rivals(options: argparse.Namespace) -> list[Rival]:
    rivals: list[Rival] = [Magnetar(executable=options.magnetar.split())]
    if options.peer == "pulsar":
        rivals.append(Pulsar(home=Path(os.environ["PULSAR_HOME"])))
    return rivals


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--peer", choices=["", "pulsar"], default="", help="PULSAR_HOME names its unpacked folder")
    add("--rounds", type=int, default=3)
    add("--scale", type=float, default=1.0, help="multiplies the amount of each load")
    add("--only", default=",".join(NAMES), help=f"comma separated, of: {', '.join(NAMES)}")
    add("--out", type=Path, help="write every round's figures here, as JSON")
    add("--quiet", type=float, default=0.0, help="before a round wait for a machine this quiet")
    add("--directory", type=Path, default=DIRECTORY, help="where data goes: a real disk")
    add(
        "--magnetar",
        default=str(Path(sys.executable).with_name("magnetar")),
        help="the command to measure",
    )
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    home = Path(os.environ.get("PULSAR_HOME", ""))
    if options.peer == "pulsar" and not (home / "bin" / "pulsar").is_file():
        parser.error("PULSAR_HOME must name an unpacked Apache Pulsar distribution")
    return options


if __name__ == "__main__":
    sys.exit(main())
