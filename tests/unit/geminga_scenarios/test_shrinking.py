"""Proves that a failure is made as short as it can be, and that what it needs is kept."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from math import inf

from geminga_scenarios.seed_run import RunOptions, SeedResult
from geminga_scenarios.shrinking import SEEDS_TRIED, Failure, shrink

SEED = 42
EVENTS = tuple((float(second), f"event {second}") for second in range(1, 21))
ALL = frozenset({"crash", "kill", "partition", "disk"})


class StoryOnPaper:
    """Fails where its hosts are enough, the dishes it needs are served, and the fault of its second
    came; a seed draws all dishes unless it is told which."""

    def __init__(
        self, needed: Iterable[str], needed_s: float, *, hosts: int = 1, seeds: Iterable[int] = ()
    ) -> None:
        self.told = 0
        self._needed = frozenset(needed)
        self._needed_s = needed_s
        self._hosts = hosts
        self._seeds = frozenset(seeds)

    def tell(self, hosts: int, seeds: Iterable[int], orders: RunOptions) -> Generator[SeedResult]:
        for seed in seeds:
            self.told += 1
            dishes = ALL if orders.menu is None else orders.menu & ALL
            fails = (
                hosts >= self._hosts
                and self._needed <= dishes
                and self._needed_s <= orders.faults_end_s
                and (dishes == ALL or not self._seeds or seed in self._seeds)
            )
            events = tuple(event for event in EVENTS if event[0] <= orders.faults_end_s)
            failure = "AssertionError: lost" if fails else None
            yield SeedResult(seed, failure, "", 30.0, 0.1, "", tuple(sorted(dishes)), events)


def shortest(story: StoryOnPaper, *, hosts: int = 4) -> Failure[int]:
    (told,) = story.tell(hosts, [SEED], RunOptions())
    failure = Failure(told, hosts, RunOptions())
    smaller = range(1, hosts)
    for shorter in shrink(story.tell, failure, smaller):
        failure = shorter
    assert failure.result.failure is not None
    return failure


def test_dishes_that_are_not_needed_are_left_out() -> None:
    assert shortest(StoryOnPaper(["crash", "disk"], 7.0)).result.faults == ("crash", "disk")


def test_faults_end_with_the_last_one_that_is_needed() -> None:
    for needed_s in (1.0, 7.0, 20.0):
        failure = shortest(StoryOnPaper(["crash"], needed_s))
        assert min(failure.options.faults_end_s, EVENTS[-1][0]) == needed_s


def test_what_fails_without_any_fault_is_told_without() -> None:
    failure = shortest(StoryOnPaper([], 0.0))
    assert failure.result.faults == ()
    assert failure.options.faults_end_s == 0.0


def test_a_smaller_cluster_is_taken_where_it_fails_as_well() -> None:
    assert shortest(StoryOnPaper(["crash"], 7.0, hosts=2)).setup == 2


def test_another_seed_is_taken_where_the_first_one_fails_no_longer() -> None:
    failure = shortest(StoryOnPaper(["crash"], 7.0, seeds=[SEED + SEEDS_TRIED - 1]))
    assert failure.result.seed == SEED + SEEDS_TRIED - 1
    assert failure.result.faults == ("crash",)


def test_where_nothing_shorter_fails_the_failure_stays_as_it_is() -> None:
    failure = shortest(StoryOnPaper(ALL, EVENTS[-1][0]))
    assert failure.result.faults == tuple(sorted(ALL))
    assert failure.options.faults_end_s in {inf, EVENTS[-1][0]}


def test_another_error_is_another_failure() -> None:
    def tell(_hosts: int, seeds: Iterable[int], orders: RunOptions) -> Generator[SeedResult]:
        for seed in seeds:
            dishes = tuple(sorted(ALL if orders.menu is None else orders.menu))
            kind = "AssertionError" if "crash" in dishes else "ValueError"
            yield SeedResult(seed, f"{kind}: x", "", 30.0, 0.1, "", dishes, EVENTS)

    (told,) = tell(1, [SEED], RunOptions())
    *_, last = shrink(tell, Failure(told, 1, RunOptions()), [])
    assert last.result.faults == ("crash",)
    assert last.result.error == "AssertionError"
