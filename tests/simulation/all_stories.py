"""Tells seeds of all stories, mixed by their shares: what a change breaks shows within seconds.

Behind `python -m tests.simulation --all`. `make simulate` runs the same seeds as tests, story by
story; those also assert what holds of many seeds together.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from functools import partial

from tests.simulation.seeds import SHARES, shares_of
from tests.simulation.stories import tell_story

from geminga_scenarios.campaign import campaign
from geminga_scenarios.console import EXIT_FAILED, Request


def mixed_seeds(
    seeds: int, first: int, only: Collection[str] = frozenset(SHARES)
) -> list[tuple[str, int]]:
    """``seeds`` of all stories together, each its share, as (story, seed): any part of the list
    from its beginning has all stories in nearly these shares, too. Those of ``only`` are left."""
    places = [
        ((number + 0.5) / len(few), story, seed)
        for story, few in shares_of(seeds, first).items()
        if story in only
        for number, seed in enumerate(few)
    ]
    return [(story, seed) for _, story, seed in sorted(places)]


def tell_all_stories(request: Request, only: Collection[str] = frozenset(SHARES)) -> int:
    """Tell ``request.seeds`` seeds and print those that fail; returns the exit code.

    Stops at the first, unless the request says to keep going.
    """
    told_seeds, failed, cpu_s = 0, 0, 0.0
    runs = mixed_seeds(request.seeds, request.first, only)
    with campaign(request.jobs) as run_many:
        calls = ((partial(tell_story, story), seed) for story, seed in runs)
        with closing(run_many(calls, request.run_options())) as outcomes:
            for (story, seed), told in zip(runs, outcomes, strict=False):
                told_seeds += 1
                cpu_s += told.cpu_s
                if told.failure is None:
                    continue
                failed += 1
                print(f"{story} --seed {seed}: {told.failure}", flush=True)
                if not request.keeps_going:
                    break
    print(f"{told_seeds} seeds, {failed} failed, in {cpu_s:.0f} s of CPU")
    return EXIT_FAILED if failed else 0
