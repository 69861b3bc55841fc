"""Tell a story of ours from many seeds, or one seed of it with its trace, or shrink one that fails.

    python -m tests.simulation ledgers --seeds 1000 --jobs 2
    python -m tests.simulation ledgers --seed 42 --trace
    python -m tests.simulation ledgers --seed 42 --shrink
    python -m tests.simulation --all --seeds 1000 --jobs 2    all stories, mixed by their shares
    python -m tests.simulation --costs --seeds 4       what a seed of each story costs
    python -m tests.simulation --branches --seeds 1000 --jobs 2
                               which error branches no seed of any story comes to

`geminga simulate` does the same with scenarios of users, by the same code. What a story does to the
world beside its menu, such as cutting the power everywhere, no option takes away. What is asserted
of several seeds together (that something rare was reached) is asserted in `make simulate` alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.project_files import ROOT
from tests.simulation.all_stories import tell_all_stories
from tests.simulation.coverage.branches import PACKAGES, survey
from tests.simulation.coverage.rarely_entered import RARELY
from tests.simulation.coverage.unreachable import reason
from tests.simulation.seeds import SHARES, shares_of
from tests.simulation.stories import STORIES, tell_story

from geminga_cli.commands.simulate import add_seed_options, request_of
from geminga_scenarios.console import Request, Story, run_story
from geminga_scenarios.seed_run import RunOptions

# Less often than by so many seeds, what is rare is entered.
RARE = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it; returns 1 if a seed failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("story", nargs="?", choices=list(STORIES), metavar="STORY")
    parser.add_argument("--costs", action="store_true", help="measure the story, or all of them")
    parser.add_argument("--all", action="store_true", help="tell all stories, mixed")
    parser.add_argument("--only", metavar="STORY,...", help="of all stories, tell these alone")
    parser.add_argument(
        "--branches", action="store_true", help="tell all, and print the branches never entered"
    )
    add_seed_options(parser)
    options = parser.parse_args(arguments)
    request = request_of(options)
    if options.all:
        return tell_all_stories(request, options.only.split(",") if options.only else STORIES)
    if options.costs:
        print_costs([options.story] if options.story else list(STORIES), request)
        return 0
    if options.branches:
        return print_branches(request)
    if options.story is None:
        parser.error(f"which story? There are {', '.join(STORIES)}")
    return run_story(
        Story(
            options.story,
            tell_story,
            lambda name: ["python", "-m", "tests.simulation", name],
            lambda _name, _seed: [],
        ),
        request,
    )


def print_costs(names: Sequence[str], request: Request) -> None:
    """What a seed of each story costs in CPU, and what its share of 1,000 seeds of all does. One
    after the other, in this process."""
    print(f"{'story':18} {'seeds':>5} {'median s':>9} {'mean s':>7} {'of 1,000':>9} {'CPU s':>7}")
    total_s = 0.0
    for name in names:
        tell_story(name, request.first, RunOptions())  # imports, and what is remembered for ever
        seeds = range(request.first, request.first + request.seeds)
        runs = [tell_story(name, seed, RunOptions()) for seed in seeds]
        costs_s = [told.cpu_s for told in runs]
        mean_s = sum(costs_s) / len(costs_s)
        share = 1000 * SHARES[name] / sum(SHARES.values())
        total_s += share * mean_s
        failed = [str(told.seed) for told in runs if told.failure is not None]
        print(
            f"{name:18} {len(costs_s):5} {median(costs_s):9.2f} {mean_s:7.2f} {share:9.1f} "
            f"{share * mean_s:7.0f}{' failed: ' if failed else ''}{','.join(failed)}",
            flush=True,
        )
    print(f"1,000 seeds of these cost {total_s:.0f} s of CPU")


def print_branches(request: Request) -> int:
    """Which error branches no story comes to, of all that can be reached as ``unreachable.py`` has
    it, and where that is wrong. Returns 1 if a seed failed."""
    found = survey(shares_of(request.seeds, request.first), request.jobs)
    missed = [each for each in found.never_entered() if reason(each) is None]
    for package in PACKAGES:
        branches = [each for each in found.places if each.package == package]
        entered = sum(each in found.seeds for each in branches)
        print(f"{package}: {entered} of {len(branches)} branches entered; never entered:")
        for branch in missed:
            if branch.package == package:
                path, _, line = found.places[branch].rpartition(":")
                print(f"  {Path(path).relative_to(ROOT)}:{line}: {branch.function}: {branch.what}")
    for branch in sorted(found.seeds):
        if (why := reason(branch)) is not None:
            print(f"entered, and said to be unreachable: {branch} ({why})")
        elif (count := found.seeds[branch].total()) >= RARE and str(branch) in RARELY:
            print(f"entered by {count} seeds, and said to be rare: {branch}")
    for failure in found.failed:
        print(f"failed: {failure}")
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
