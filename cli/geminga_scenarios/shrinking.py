"""Finds the shortest run in which a story still fails: fewer hosts, fewer faults, less time.

A fault that is left out changes every draw after it, so a seed may stop failing although that fault
had nothing to do with the failure: some other seeds are tried as well. Faults that end earlier are
the same faults, so the last one that is needed is found by bisection, with one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from geminga_scenarios.seed_run import RunOptions, SeedResult

# Seeds that are tried with each shorter menu, the failing one first. The price of a step that
# fails: eight runs, each at most as long as the first.
SEEDS_TRIED = 8

SetupT = TypeVar("SetupT")
# Runs some seeds on a cluster that is set up like this, and yields their results.
RunSeeds = Callable[[SetupT, Iterable[int], RunOptions], Generator[SeedResult]]


@dataclass(frozen=True, slots=True)
class Failure(Generic[SetupT]):
    """A run that failed, and what it takes to repeat it."""

    result: SeedResult
    setup: SetupT
    options: RunOptions


def shrink(
    run_seeds: RunSeeds[SetupT], failure: Failure[SetupT], smaller: Sequence[SetupT]
) -> Iterator[Failure[SetupT]]:
    """Yield each shorter run that still fails in the same way, the shortest last.

    The same way is an error of the same class. ``smaller`` are the smaller clusters, the smallest
    first.
    """
    # From here on the menu is given: what the seed drew for itself could not be shortened. The
    # given menu has the same dishes, so the run is the same as before.
    menu = frozenset(failure.result.faults)
    failure = replace(failure, options=replace(failure.options, menu=menu))
    # Fewer hosts first: that makes all the runs that follow shorter. The smallest cluster that
    # fails ends this stage: ``smaller`` begins with it.
    for setup in smaller:
        if found := _first_failure(run_seeds, failure, replace(failure, setup=setup)):
            yield (failure := found)
            break
    # One fault after the other is left out. Where that worked, the rest is tried again: a fault
    # that was needed beside another one may not be needed without it. Ends: each round that goes on
    # has left out at least one fault.
    is_shorter = True
    while is_shorter:
        is_shorter = False
        # Over the faults of the run at the beginning of the round; one that is gone by now only
        # repeats a menu.
        for fault in failure.result.faults:
            rest = frozenset(failure.result.faults) - {fault}
            shorter = replace(failure, options=replace(failure.options, menu=rest))
            if found := _first_failure(run_seeds, failure, shorter):
                is_shorter = True
                yield (failure := found)
    yield from _end_faults_earlier(run_seeds, failure)


def _first_failure(
    run_seeds: RunSeeds[SetupT], failure: Failure[SetupT], shorter: Failure[SetupT]
) -> Failure[SetupT] | None:
    """Run some seeds as ``shorter`` says; return the first that fails as ``failure`` did."""
    first, error = failure.result.seed, failure.result.error
    seeds = range(first, first + SEEDS_TRIED)
    # Closed at the first failure: the seeds behind it are cancelled.
    with closing(run_seeds(shorter.setup, seeds, shorter.options)) as results:
        same = (replace(shorter, result=each) for each in results if each.error == error)
        return next(same, None)


def _end_faults_earlier(
    run_seeds: RunSeeds[SetupT], failure: Failure[SetupT]
) -> Iterator[Failure[SetupT]]:
    """Bisect between the latest end of faults that did not fail and the earliest that did."""
    #     passed_s          end_s              no failure with faults up to ``passed_s``,
    #        ├────┬────┬──────┤               a failure with faults up to ``end_s``;
    #             moments                     each round halves the moments in between
    passed_s = -1.0
    while True:
        end_s = failure.options.faults_end_s
        # Only the moments of events matter: an end between two of them changes nothing.
        moments = sorted({0.0, *(at for at, _ in failure.result.events)})
        moments = [at for at in moments if passed_s < at < end_s]
        if not moments:
            return
        # The lower middle: the earlier end is the better one.
        middle_s = moments[(len(moments) - 1) // 2]
        options = replace(failure.options, faults_end_s=middle_s)
        (result,) = run_seeds(failure.setup, [failure.result.seed], options)
        if result.error == failure.result.error:
            yield (failure := replace(failure, result=result, options=options))
        else:
            passed_s = middle_s
