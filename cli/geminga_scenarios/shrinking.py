"""Finds the shortest menu with which a story still fails: fewer hosts, fewer dishes, less time.

A dish that is left out changes every draw after it, so the seed may fail no longer though the dish
had nothing to do with it: some other seeds are tried as well. Faults that end earlier are the same
faults, so the last one that is needed is found by halving, with one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from geminga_scenarios.telling import Orders, Told

# Seeds that are tried with each shorter menu, the failing one first.
SEEDS_TRIED = 8

SetupT = TypeVar("SetupT")
# What came of each of some seeds, on a cluster like this.
TellSeeds = Callable[[SetupT, Iterable[int], Orders], Generator[Told]]


@dataclass(frozen=True, slots=True)
class Failure(Generic[SetupT]):
    """A run that failed, and how to have it again."""

    told: Told
    setup: SetupT
    orders: Orders


def shrink(
    tell: TellSeeds[SetupT], failure: Failure[SetupT], smaller: Sequence[SetupT]
) -> Iterator[Failure[SetupT]]:
    """Yield each shorter run that still fails in this way (with an error of the same class), the
    shortest last. ``smaller`` are the smaller clusters, the smallest first."""
    failure = replace(failure, orders=_with_menu(failure, failure.told.dishes))
    for setup in smaller:
        if found := _first_failure(tell, failure, replace(failure, setup=setup)):
            yield (failure := found)
            break
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for dish in failure.told.dishes:
            rest = [each for each in failure.told.dishes if each != dish]
            shorter = replace(failure, orders=_with_menu(failure, rest))
            if found := _first_failure(tell, failure, shorter):
                is_shorter = True
                yield (failure := found)
    yield from _end_faults_earlier(tell, failure)


def _with_menu(failure: Failure[SetupT], dishes: Iterable[str]) -> Orders:
    return replace(failure.orders, menu=frozenset(dishes))


def _first_failure(
    tell: TellSeeds[SetupT], failure: Failure[SetupT], shorter: Failure[SetupT]
) -> Failure[SetupT] | None:
    """The first of some seeds that fails as ``failure`` did, told as ``shorter`` says."""
    seeds = range(failure.told.seed, failure.told.seed + SEEDS_TRIED)
    with closing(tell(shorter.setup, seeds, shorter.orders)) as runs:
        return next((replace(shorter, told=told) for told in runs if _is_like(told, failure)), None)


def _end_faults_earlier(
    tell: TellSeeds[SetupT], failure: Failure[SetupT]
) -> Iterator[Failure[SetupT]]:
    well_s = -1.0
    while True:
        end_s = failure.orders.faults_end_s
        moments = sorted({0.0, *(at for at, _ in failure.told.events)})
        moments = [at for at in moments if well_s < at < end_s]
        if not moments:
            return
        middle_s = moments[(len(moments) - 1) // 2]
        orders = replace(failure.orders, faults_end_s=middle_s)
        (told,) = tell(failure.setup, [failure.told.seed], orders)
        if _is_like(told, failure):
            yield (failure := replace(failure, told=told, orders=orders))
        else:
            well_s = middle_s


def _is_like(told: Told, failure: Failure[SetupT]) -> bool:
    return told.failure is not None and told.error == failure.told.error
