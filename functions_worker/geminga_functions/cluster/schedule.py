"""Which worker is to run which instance: balanced, with as few moves as that takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from geminga_functions.names import InstanceName


def schedule(
    instances: Sequence[InstanceName],
    assigned: Mapping[InstanceName, str],
    workers: Collection[str],
    *,
    kept: Collection[str] = (),
    balances: bool = True,
) -> dict[InstanceName, str]:
    """The worker of each instance; without a worker that could take one, only those that stay.

    ``assigned`` says where instances are now. Of ``workers`` each may be given instances; an
    instance of a worker that is none of them goes elsewhere, unless that worker is in ``kept``:
    whether its instances still run is not known yet. With ``balances`` the numbers of instances of
    two workers then differ by one at most, and only as many instances move as that takes.
    """
    loads = dict.fromkeys(sorted(workers), 0)
    placed: dict[InstanceName, str] = {}
    homeless: list[InstanceName] = []
    for instance in instances:
        worker = assigned.get(instance)
        if worker in loads:
            placed[instance] = worker
            loads[worker] += 1
        elif worker is not None and worker in kept:
            placed[instance] = worker
        else:
            homeless.append(instance)
    if not loads:
        return placed
    for instance in homeless:
        worker = least_loaded(loads)
        placed[instance] = worker
        loads[worker] += 1
    if balances:
        _balance(placed, loads)
    return placed


def _balance(placed: dict[InstanceName, str], loads: dict[str, int]) -> None:
    """Move instances from workers above their share to those below it."""
    share, rest = divmod(sum(loads.values()), len(loads))
    # Those that have most may keep one more than the share: fewest moves. Ties go by name.
    order = sorted(loads, key=lambda worker: (-loads[worker], worker))
    shares = {worker: share + (rank < rest) for rank, worker in enumerate(order)}
    takers = [worker for worker in sorted(loads) for _ in range(shares[worker] - loads[worker])]
    for instance in sorted(placed, reverse=True):
        worker = placed[instance]
        if takers and worker in loads and loads[worker] > shares[worker]:
            loads[worker] -= 1
            placed[instance] = takers.pop(0)
            loads[placed[instance]] += 1


def least_loaded(loads: Mapping[str, int]) -> str:
    """The worker with the fewest instances, of equal ones the first by name."""
    return min(loads, key=lambda worker: (loads[worker], worker))
