"""Runs a story from seeds, and prints what failed, what led to it and how to repeat it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf
from typing import Generic

from geminga_scenarios.campaign import campaign
from geminga_scenarios.errors import UnknownFault
from geminga_scenarios.seed_run import RunOptions, SeedResult
from geminga_scenarios.shrinking import Failure, RunSeeds, SetupT, shrink
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.run_control import SIZES, dish_names

EXIT_FAILED = 1
# Words of ``--menu`` beside the names of faults.
ALL, NOTHING = "all", "none"
# The last faults, which are shown with a failure; the trace has all of them.
EVENTS_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class Request:
    """What the options of a command ask for."""

    seeds: int = 100
    # The first of these seeds.
    first: int = 0
    # This seed alone, whatever the two above say.
    seed: int | None = None
    # Names of faults between commas, or ``all``, or ``none``; None lets each seed draw them.
    menu: str | None = None
    faults_end_s: float = inf
    # How many processes run seeds side by side.
    jobs: int = 1
    keeps_going: bool = False
    traces: bool = False
    records: bool = False
    shrinks: bool = False

    def run_options(self) -> RunOptions:
        """How each seed is run. Raises ``UnknownFault``."""
        return RunOptions(
            None if self.menu is None else faults_in(self.menu),
            self.faults_end_s,
            self.traces,
            self.records,
        )


@dataclass(frozen=True, slots=True)
class Story(Generic[SetupT]):
    """A story, and the cluster it is run on."""

    setup: SetupT
    # Runs one seed on a cluster that is set up like this.
    run: Callable[[SetupT, int, RunOptions], SeedResult]
    # The command that runs the story on such a cluster.
    words: Callable[[SetupT], list[str]]
    # The smaller clusters for a seed, the smallest first.
    smaller: Callable[[SetupT, int], Sequence[SetupT]]


def faults_in(menu: str) -> frozenset[str]:
    """The faults that ``--menu`` names. Raises ``UnknownFault``."""
    known = [*dish_names(FaultMenu), SIZES]
    if menu in {ALL, NOTHING}:
        return frozenset(known if menu == ALL else ())
    wanted = menu.split(",")
    for name in wanted:
        if name not in known:
            there_are = ", ".join([ALL, NOTHING, *known])
            raise UnknownFault(f"there is no fault {name!r}; there are {there_are}")
    return frozenset(wanted)


def run_story(story: Story[SetupT], request: Request) -> int:
    """Do what is asked for, and print the results; returns the exit code."""
    # The processes are kept for all runs of a shrinking: starting one takes longer than many a
    # seed.
    with campaign(request.jobs) as run_many:

        def run_seeds(
            setup: SetupT, seeds: Iterable[int], options: RunOptions
        ) -> Generator[SeedResult]:
            # Pickled for the processes, so the story's function has to be one of a module.
            run_seed = partial(story.run, setup)
            return run_many(((run_seed, seed) for seed in seeds), options)

        if request.seed is not None and request.shrinks:
            return _shrink_seed(story, run_seeds, request, request.seed)
        return _run_seeds(story, run_seeds, request)


def _run_seeds(story: Story[SetupT], run_seeds: RunSeeds[SetupT], request: Request) -> int:
    first, count = request.first, request.seeds
    if request.seed is not None:
        first, count = request.seed, 1
    options = request.run_options()
    # On standard error: what is redirected holds only results.
    shows_progress = sys.stderr.isatty() and count > 1
    cpu_s = virtual_s = 0.0
    done = failed = 0
    # Closed at the first failure: seeds that were submitted ahead are cancelled.
    with closing(run_seeds(story.setup, range(first, first + count), options)) as results:
        for result in results:
            done += 1
            cpu_s += result.cpu_s
            virtual_s += result.virtual_s
            if shows_progress:
                # Each line overwrites the one before, until the last.
                end = "\n" if done == count else ""
                words = f"\r{done} of {count} seeds, {failed} failed"
                print(words, end=end, file=sys.stderr, flush=True)
            # Also of seeds that succeed, where a trace was asked for.
            _print(trace_lines(result))
            if result.failure is None:
                continue
            failed += 1
            if request.keeps_going:
                print(f"seed {result.seed}: {result.failure}", flush=True)
            else:
                _print(failure_lines(story, Failure(result, story.setup, options)))
                break
    what = f"{done} seed" + ("s" if done > 1 else "")
    verdict = f"{failed} failed" if failed else "all well" if done > 1 else "all is well"
    print(f"{what}, {verdict}: {virtual_s:.0f} virtual seconds in {cpu_s:.1f} s of CPU")
    return EXIT_FAILED if failed else 0


def _shrink_seed(
    story: Story[SetupT], run_seeds: RunSeeds[SetupT], request: Request, seed: int
) -> int:
    # Traces of all the runs that are tried would hide the result.
    options = replace(request.run_options(), is_traced=False, is_recorded=False)
    # Run once more, with what the seed draws itself: the faults that it draws are where shrinking
    # begins.
    (result,) = run_seeds(story.setup, [seed], options)
    if result.failure is None:
        print(f"seed {seed} does not fail")
        return 0
    failure = first = Failure(result, story.setup, options)
    shorter = shrink(run_seeds, first, story.smaller(story.setup, seed))
    # Each step is printed when it is found. ``failure`` is the last one after the loop.
    for failure in chain([first], shorter):
        result, end_s = failure.result, failure.options.faults_end_s
        until = "" if end_s == inf else f", faults until {end_s:.6f}"
        print(f"seed {result.seed} fails, {menu_words(result)} on the menu{until}: {result.error}")
    print()
    _print(failure_lines(story, failure, is_shortest=True))
    return EXIT_FAILED


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def menu_words(result: SeedResult) -> str:
    """The menu of a run, as ``--menu`` takes it."""
    return ",".join(result.faults) or NOTHING


def failure_lines(
    story: Story[SetupT], failure: Failure[SetupT], *, is_shortest: bool = False
) -> Iterator[str]:
    """A run that failed: its error, the last faults before it, and the command that repeats it."""
    result = failure.result
    yield f"seed {result.seed} fails after {result.virtual_s:.6f} virtual seconds"
    yield from result.where.splitlines()
    yield from (result.failure or "").splitlines()
    yield ""
    yield f"what was done, {menu_words(result)} on the menu:"
    hidden = max(0, len(result.events) - EVENTS_SHOWN_MAX)
    if hidden:
        yield f"  ({hidden} events before: --trace shows them)"
    yield from (f"{at:12.6f}  {text}" for at, text in result.events[hidden:])
    yield ""
    yield f"again:   {replay_command(story, failure)} --trace"
    if not is_shortest:
        yield f"shorter: {replay_command(story, failure)} --shrink"


def replay_command(story: Story[SetupT], failure: Failure[SetupT]) -> str:
    """The command that repeats a run, to the last byte."""
    words = [*story.words(failure.setup), "--seed", str(failure.result.seed)]
    if failure.options.menu is not None:
        words += ["--menu", menu_words(failure.result)]
    if failure.options.faults_end_s < inf:
        # ``repr`` keeps every digit: a fault may begin at exactly this time.
        words += ["--faults-end", repr(failure.options.faults_end_s)]
    return shlex.join(words)


def trace_lines(result: SeedResult) -> Iterator[str]:
    """Callbacks and deliveries where they were recorded, then what happened, in words."""
    yield from result.lines
    width = max((len(host) for _, host, _ in result.trace), default=0)
    for at, host, text in result.trace:
        yield f"{at:12.6f}  {host or '*':{width}}  {text}"
    if result.trace:
        yield f"{result.virtual_s:12.6f}  the end, trace {result.digest}"
        yield ""
