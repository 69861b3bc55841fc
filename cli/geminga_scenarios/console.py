"""Tells a story from seeds for people: what failed, how to have it again, and what led to it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Generic

from geminga_scenarios.campaign import Campaign
from geminga_scenarios.errors import NoSuchDish
from geminga_scenarios.shrinking import Failure, SetupT, TellSeeds, shrink
from geminga_scenarios.telling import Orders, Told
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.run_control import SIZES, dish_names

EXIT_FAILED = 1
ALL, NOTHING = "all", "none"
# What was done to the world that is shown with a failure; the trace has everything.
EVENTS_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class Request:
    """What the words of a command ask for: seeds from ``first`` on, or ``seed`` alone. ``menu``
    names the dishes that are served, with commas between; None leaves that to each seed."""

    seeds: int = 100
    first: int = 0
    seed: int | None = None
    menu: str | None = None
    faults_end_s: float = inf
    jobs: int = 1
    keeps_going: bool = False
    traces: bool = False
    records: bool = False
    shrinks: bool = False

    def orders(self) -> Orders:
        """How the stories are told. Raises ``NoSuchDish``."""
        return Orders(
            None if self.menu is None else dishes_in(self.menu),
            self.faults_end_s,
            self.traces,
            self.records,
        )


@dataclass(frozen=True, slots=True)
class Story(Generic[SetupT]):
    """What is told: ``tell`` a seed on a cluster that is set up like this. ``words`` is the command
    that tells it on such a cluster, ``smaller`` gives the smaller clusters for a seed."""

    setup: SetupT
    tell: Callable[[SetupT, int, Orders], Told]
    words: Callable[[SetupT], list[str]]
    smaller: Callable[[SetupT, int], Sequence[SetupT]]


def dishes_in(menu: str) -> frozenset[str]:
    """The dishes that are named, with commas between. Raises ``NoSuchDish``."""
    known = [*dish_names(FaultMenu), SIZES]
    if menu in {ALL, NOTHING}:
        return frozenset(known if menu == ALL else ())
    wanted = menu.split(",")
    for name in wanted:
        if name not in known:
            raise NoSuchDish(name, [ALL, NOTHING, *known])
    return frozenset(wanted)


def run_story(story: Story[SetupT], request: Request) -> int:
    """Do what is asked for, and print it; returns the exit code."""
    with Campaign(request.jobs) as campaign:

        def tell(setup: SetupT, seeds: Iterable[int], orders: Orders) -> Generator[Told]:
            return campaign.tell(partial(story.tell, setup), seeds, orders)

        if request.seed is not None and request.shrinks:
            return _run_shrinking(story, tell, request, request.seed)
        return _run_seeds(story, tell, request)


def _run_seeds(story: Story[SetupT], tell: TellSeeds[SetupT], request: Request) -> int:
    first, count = request.first, request.seeds
    if request.seed is not None:
        first, count = request.seed, 1
    orders = request.orders()
    cpu_s = virtual_s = 0.0
    told_seeds = failed = 0
    with closing(tell(story.setup, range(first, first + count), orders)) as runs:
        for told in runs:
            told_seeds += 1
            cpu_s += told.cpu_s
            virtual_s += told.virtual_s
            _show_progress(told_seeds, count, failed)
            _print(trace_lines(told))
            if told.failure is None:
                continue
            failed += 1
            if request.keeps_going:
                print(f"seed {told.seed}: {told.failure}", flush=True)
            else:
                _print(failure_lines(story, Failure(told, story.setup, orders)))
                break
    what = f"{told_seeds} seed" + ("s" if told_seeds > 1 else "")
    verdict = f"{failed} failed" if failed else "all well" if told_seeds > 1 else "all is well"
    print(f"{what}, {verdict}: {virtual_s:.0f} virtual seconds in {cpu_s:.1f} s of CPU")
    return EXIT_FAILED if failed else 0


def _run_shrinking(
    story: Story[SetupT], tell: TellSeeds[SetupT], request: Request, seed: int
) -> int:
    orders = replace(request.orders(), is_traced=False, is_recorded=False)
    (told,) = tell(story.setup, [seed], orders)
    if told.failure is None:
        print(f"seed {seed} does not fail")
        return 0
    failure = Failure(told, story.setup, orders)
    _print(step_lines(failure))
    for shorter in shrink(tell, failure, story.smaller(story.setup, seed)):
        failure = shorter
        _print(step_lines(failure))
    print()
    _print(failure_lines(story, failure, is_shortest=True))
    return EXIT_FAILED


def _show_progress(told: int, count: int, failed: int) -> None:
    if sys.stderr.isatty() and count > 1:
        end = "\n" if told == count else ""
        print(f"\r{told} of {count} seeds, {failed} failed", end=end, file=sys.stderr, flush=True)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def step_lines(failure: Failure[SetupT]) -> Iterator[str]:
    """One step of shrinking."""
    told, end_s = failure.told, failure.orders.faults_end_s
    until = "" if end_s == inf else f", faults until {end_s:.6f}"
    yield f"seed {told.seed} fails, {menu_of(told)} on the menu{until}: {told.error}"


def menu_of(told: Told) -> str:
    """The dishes of a menu, as ``--menu`` takes them."""
    return ",".join(told.dishes) or NOTHING


def failure_lines(
    story: Story[SetupT], failure: Failure[SetupT], *, is_shortest: bool = False
) -> Iterator[str]:
    """All about a run that failed."""
    told = failure.told
    yield f"seed {told.seed} fails after {told.virtual_s:.6f} virtual seconds"
    yield from told.where.splitlines()
    yield from (told.failure or "").splitlines()
    yield ""
    yield f"what was done, {menu_of(told)} on the menu:"
    hidden = max(0, len(told.events) - EVENTS_SHOWN_MAX)
    if hidden:
        yield f"  ({hidden} events before: --trace shows them)"
    yield from (f"{at:12.6f}  {text}" for at, text in told.events[hidden:])
    yield ""
    yield f"again:   {replay_command(story, failure)} --trace"
    if not is_shortest:
        yield f"shorter: {replay_command(story, failure)} --shrink"


def replay_command(story: Story[SetupT], failure: Failure[SetupT]) -> str:
    """The command that tells a run again, to the last byte."""
    words = [*story.words(failure.setup), "--seed", str(failure.told.seed)]
    if failure.orders.menu is not None:
        words += ["--menu", menu_of(failure.told)]
    if failure.orders.faults_end_s < inf:
        words += ["--faults-end", repr(failure.orders.faults_end_s)]
    return shlex.join(words)


def trace_lines(told: Told) -> Iterator[str]:
    """What happened, in words, and each callback where that was recorded."""
    if told.lines:
        yield from told.lines
    width = max((len(host) for _, host, _ in told.trace), default=0)
    for at, host, text in told.trace:
        yield f"{at:12.6f}  {host or '*':{width}}  {text}"
    if told.trace:
        yield f"{told.virtual_s:12.6f}  the end, trace {told.digest}"
        yield ""
