"""Measure a standalone, and a bookie alone; beside a real Apache Pulsar where one is given.

    python -m tests.performance                   our figures against their budgets
    python -m tests.performance --peer pulsar     and against PULSAR_HOME's Apache Pulsar
    python -m tests.performance --only unbatched-1k --rounds 5 --scale 0.5
    python -m tests.performance --only un,batched --bookies 3
    python -m tests.performance --only bookie     a bookie alone, over BookKeeper's protocol

Each scenario begins with a round that does not count, or begins cold in each; then the rivals take
turns, so that both see the same machine. The figures are medians of the rounds, the spread is
beside them, and so is how many cores others kept busy meanwhile: a table with noise in it should be
measured again. Publishing costs the client more than the server: rates are the client's limit, CPU
is the figure. Of several bookies the CPU of one counts, for elsewhere each has its own machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from tests.performance.bench import Plan, run
from tests.performance.figures import Rounds
from tests.performance.loads.measure import LoadFailed
from tests.performance.rivals.program import ServerFailed
from tests.performance.rivals.servers import Geminga, Pulsar
from tests.performance.scenarios import NAMES, named
from tests.performance.table import table

# A disk: where temporary files live in memory, a sync costs nothing.
DIRECTORY = Path("/var/tmp")


def main() -> int:
    """Measure, print the table, write the results where asked."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is stopped too
    with tempfile.TemporaryDirectory(prefix="geminga-bench-", dir=options.directory) as directory:
        plan = Plan(
            geminga=Geminga(options.geminga.split(), bookies=options.bookies),
            peers=[Pulsar(Path(os.environ["PULSAR_HOME"]))] if options.peer else [],
            only=options.only,
            rounds=options.rounds,
            scale=options.scale,
            quiet_cores=options.quiet,
            directory=Path(directory),
        )
        results: dict[str, Rounds] = {rival.name: {} for rival in plan.rivals}
        failure: Exception | None = None
        try:
            run(plan, results)
        except (ServerFailed, LoadFailed, OSError) as failed:
            failure = failed  # what was measured until then is shown all the same
    facts = _facts(plan)
    print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()) + "\n")
    print(table(results))
    if options.out is not None:
        options.out.write_text(json.dumps({"facts": facts, "results": results}, indent=1) + "\n")
    if failure is not None:
        print(f"\n{type(failure).__name__}: {failure}", file=sys.stderr)
    return 0 if failure is None else 1


def _facts(plan: Plan) -> dict[str, object]:
    """What a reader of the results must know about how they were made."""
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "cores": os.cpu_count(),
        "Linux": platform.release(),
        "Python": platform.python_version(),
        "pulsar-client": version("pulsar-client"),
        "bookies": plan.geminga.bookies,
        "rounds": plan.rounds,
        "scale": plan.scale,
    }


def _scenarios(words: str) -> frozenset[str]:
    try:
        return named(words)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--peer", choices=["", "pulsar"], default="", help="PULSAR_HOME names its unpacked folder")
    add("--rounds", type=int, default=3)
    add("--scale", type=float, default=1.0, help="multiplies the amount of each load")
    add(
        "--only",
        type=_scenarios,
        default=",".join(NAMES),
        help=f"comma separated, each a name or the beginning of some, of: {', '.join(NAMES)}",
    )
    add(
        "--bookies",
        type=int,
        default=1,
        help="of our standalone; with 3 each message is on all of them, and acknowledged by 2",
    )
    add("--out", type=Path, help="write every round's figures here, as JSON")
    add("--quiet", type=float, default=0.0, help="before a round wait for a machine this quiet")
    add("--directory", type=Path, default=DIRECTORY, help="where data goes: a real disk")
    add(
        "--geminga",
        default=str(Path(sys.executable).with_name("geminga")),
        help="the command to measure",
    )
    options = parser.parse_args()
    home = Path(os.environ.get("PULSAR_HOME", ""))
    if options.peer == "pulsar" and not (home / "bin" / "pulsar").is_file():
        parser.error("PULSAR_HOME must name an unpacked Apache Pulsar distribution")
    return options


if __name__ == "__main__":
    sys.exit(main())
