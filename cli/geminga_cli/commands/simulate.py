"""``geminga simulate``: a user's scenario on a simulated cluster, from many seeds or from one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from geminga_cli.output import drop_output

if TYPE_CHECKING:
    from geminga_scenarios.console import Request
    from geminga_scenarios.scenario import Setup


def main(arguments: Sequence[str]) -> int:
    """Run the scenario; returns 0 if all was well, 1 if a seed failed."""
    options = make_parser().parse_args(arguments)

    from geminga_scenarios.console import Story, run_story  # noqa: PLC0415 - not for --help
    from geminga_scenarios.scenario import (  # noqa: PLC0415 - the same
        Setup,
        run_scenario_seed,
        smaller_setups,
    )

    path = Path(options.scenario)
    # What is None is left to the seed.
    setup = Setup(options.bookies, options.brokers, options.proxies, options.time_limit)
    story = Story(
        setup,
        partial(run_scenario_seed, path),
        # The command that repeats a failure, for the report.
        lambda setup: ["geminga", "simulate", options.scenario, *setup_words(setup)],
        smaller_setups,
    )
    try:
        return run_story(story, request_of(options))
    except BrokenPipeError:  # the reader of our output has gone
        drop_output()
        return 0


def make_parser() -> argparse.ArgumentParser:
    """The options of ``geminga simulate``."""
    parser = argparse.ArgumentParser(
        prog="geminga simulate",
        description="Run a scenario, a Python file with `async def scenario(cluster)`, on a "
        "simulated cluster: bookies, brokers, ZooKeeper and clients in one thread, in virtual "
        "time, with faults. A seed decides the order of events and every fault, so that a run can "
        "be repeated. See docs/simulation.md.",
        allow_abbrev=False,
    )
    parser.add_argument("scenario", metavar="FILE", help="the scenario")
    add_seed_options(parser)
    cluster = parser.add_argument_group("the cluster; the seed chooses what is not given")
    cluster.add_argument(
        "--bookies", type=_at_least_1, metavar="N", help="each message is on three of them"
    )
    cluster.add_argument("--brokers", type=_at_least_1, metavar="N")
    cluster.add_argument(
        "--proxies", type=int, default=0, metavar="N", help="clients connect to them (default 0)"
    )
    cluster.add_argument(
        "--time-limit",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="a scenario that runs longer fails (virtual time; default 3600)",
    )
    return parser


def add_seed_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for seeds, faults, and what is shown of a run."""
    seeds = parser.add_argument_group("seeds")
    seeds.add_argument("--seeds", type=_at_least_1, default=100, metavar="N", help="(default 100)")
    seeds.add_argument("--first", type=int, default=0, metavar="SEED", help="(default 0)")
    seeds.add_argument("--seed", type=int, help="this seed alone")
    # A seed runs in one thread: several seeds need several processes.
    seeds.add_argument("--jobs", type=_at_least_1, default=1, metavar="N", help="processes")
    seeds.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--menu",
        metavar="FAULT,...",
        help="only these, such as crash,partition; or all; or none (default: each seed draws some)",
    )
    faults.add_argument(
        "--faults-end",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="no fault begins after this time",
    )
    one = parser.add_argument_group("looking into a failure")
    one.add_argument("--trace", action="store_true", help="show what happened, in words")
    # Many thousand lines: for comparing two runs that should be alike.
    one.add_argument("--callbacks", action="store_true", help="show each callback and delivery")
    one.add_argument(
        "--shrink",
        action="store_true",
        help="find the shortest menu of faults with which --seed still fails",
    )


def request_of(options: argparse.Namespace) -> Request:
    """What the options of ``add_seed_options`` ask for."""
    from geminga_scenarios.console import Request  # noqa: PLC0415 - not for --help

    return Request(
        seeds=options.seeds,
        first=options.first,
        seed=options.seed,
        menu=options.menu,
        faults_end_s=options.faults_end,
        jobs=options.jobs,
        keeps_going=options.keep_going,
        traces=options.trace,
        records=options.callbacks,
        shrinks=options.shrink,
    )


def setup_words(setup: Setup) -> list[str]:
    """The options that ask for this cluster; those that would say the default are left out."""
    words: list[str] = []
    if setup.bookies is not None:
        words += ["--bookies", str(setup.bookies)]
    if setup.brokers is not None:
        words += ["--brokers", str(setup.brokers)]
    if setup.proxies:
        words += ["--proxies", str(setup.proxies)]
    # The default is the class's own.
    if setup.time_limit_s != type(setup)().time_limit_s:
        words += ["--time-limit", str(setup.time_limit_s)]
    return words


def _at_least_1(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return number
