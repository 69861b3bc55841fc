"""Proves that instances are spread evenly, and that no more of them move than that takes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from geminga_functions.cluster.schedule import schedule
from geminga_functions.names import FunctionName, InstanceName

WORKERS = ("w1", "w2", "w3")


def instances(count: int) -> list[InstanceName]:
    """So many instances of one function."""
    function = FunctionName("public", "default", "f")
    return [InstanceName(function, number) for number in range(count)]


def moves(before: dict[InstanceName, str], after: dict[InstanceName, str]) -> int:
    """How many of the instances that had a worker have another one now."""
    return sum(1 for name, worker in before.items() if after.get(name, worker) != worker)


def test_new_instances_are_spread_evenly() -> None:
    assert Counter(schedule(instances(12), {}, WORKERS).values()) == dict.fromkeys(WORKERS, 4)


def test_instances_of_a_dead_worker_alone_move() -> None:
    before = schedule(instances(12), {}, WORKERS)
    after = schedule(instances(12), before, ["w1", "w3"])
    assert Counter(after.values()) == {"w1": 6, "w3": 6}
    assert moves(before, after) == 4


def test_a_worker_that_joins_takes_its_share_and_no_more() -> None:
    before = schedule(instances(12), {}, WORKERS)
    after = schedule(instances(12), before, [*WORKERS, "w4"])
    assert Counter(after.values()) == dict.fromkeys([*WORKERS, "w4"], 3)
    assert moves(before, after) == 3


def test_nothing_moves_to_a_worker_that_joins_where_rebalances_are_off() -> None:
    before = schedule(instances(12), {}, WORKERS)
    assert schedule(instances(12), before, [*WORKERS, "w4"], balances=False) == before


def test_an_instance_that_may_still_run_keeps_its_place() -> None:
    one, two = instances(2)
    before = {one: "paused", two: "dead"}
    assert schedule([one, two], before, ["w1"], kept=["paused"]) == {one: "paused", two: "w1"}


def test_without_workers_only_what_may_still_run_has_a_place() -> None:
    one, two = instances(2)
    assert schedule([one, two], {one: "paused"}, [], kept=["paused"]) == {one: "paused"}


@pytest.mark.parametrize("seed", range(200))
def test_any_schedule_is_complete_and_even_and_moves_as_few_as_that_takes(seed: int) -> None:
    random = Random(seed)
    names = instances(random.randrange(40))
    known = [f"w{number}" for number in range(random.randrange(1, 8))]
    before = {name: random.choice(known) for name in names if random.random() < 0.8}
    workers = random.sample(known, random.randrange(1, len(known) + 1))

    after = schedule(names, before, workers)

    loads = Counter(dict.fromkeys(workers, 0))
    loads.update(after.values())
    assert after.keys() == set(names)
    assert loads.keys() == set(workers)
    assert max(loads.values()) - min(loads.values()) <= 1
    # Each worker keeps what it had, up to its share; the larger shares go where most is.
    had = sorted((sum(1 for each in before.values() if each == w) for w in workers), reverse=True)
    share, rest = divmod(len(names), len(workers))
    kept = sum(min(load, share + (rank < rest)) for rank, load in enumerate(had))
    assert moves(before, after) == len(before) - kept
    assert schedule(names, after, workers) == after
