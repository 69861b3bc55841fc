"""Proves that instances are spread evenly, and that no more of them move than that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geminga_functions.cluster.schedule import schedule
from geminga_functions.names import FunctionName, InstanceName

FUNCTION = FunctionName("public", "default", "f")
WORKERS = ("a", "b", "c", "d", "gone")


def instances(count: int) -> list[InstanceName]:
    return [InstanceName(FUNCTION, number) for number in range(count)]


situations = st.tuples(
    st.integers(0, 30),
    st.lists(st.sampled_from((*WORKERS, None)), min_size=30, max_size=30),
    st.sets(st.sampled_from(WORKERS[:-1]), min_size=1),
)


@given(situations)
def test_loads_differ_by_one_at_most_and_only_what_must_moves(
    situation: tuple[int, list[str | None], set[str]],
) -> None:
    count, places, workers = situation
    wanted = instances(count)
    before = {name: place for name, place in zip(wanted, places, strict=False) if place is not None}
    after = schedule(wanted, before, workers)
    assert sorted(after) == wanted
    loads = Counter(dict.fromkeys(workers, 0)) + Counter(after.values())
    assert set(after.values()) <= workers
    assert max(loads[each] for each in workers) - min(loads[each] for each in workers) <= 1
    # Fewest moves: no worker gives up an instance that it had room for.
    kept = Counter(place for name, place in before.items() if after[name] == place)
    had = Counter(place for place in before.values() if place in workers)
    share, rest = divmod(count, len(workers))
    for worker in workers:
        assert kept[worker] >= min(had[worker], share)
    over = sum(had[worker] > share and kept[worker] > share for worker in workers)
    assert over == min(rest, sum(had[worker] > share for worker in workers))


def test_without_balance_only_instances_without_a_worker_move() -> None:
    wanted = instances(6)
    before = dict.fromkeys(wanted[:4], "a") | {wanted[4]: "gone"}
    after = schedule(wanted, before, {"a", "b"}, balances=False)
    assert [after[name] for name in wanted] == ["a", "a", "a", "a", "b", "b"]


def test_an_instance_that_may_still_run_stays_where_it_is() -> None:
    wanted = instances(3)
    before = dict.fromkeys(wanted, "gone")
    assert schedule(wanted, before, {"a"}, kept={"gone"}) == before


def test_without_workers_nothing_is_placed() -> None:
    assert schedule(instances(2), {}, ()) == {}
