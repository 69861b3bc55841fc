"""Decides which worker runs which instance: balanced, with as few moves as possible. Pure."""

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
    """The worker of each instance.

    ``assigned`` says where instances are now. Each of ``workers`` may get instances. An instance of
    another worker moves to one of them, unless its worker is in ``kept``: instances there may still
    run. If ``workers`` is empty, only the instances that stay have a worker. With ``balances`` the
    numbers of instances of any two workers differ by at most one, and no instance moves needlessly.
    """
    loads = dict.fromkeys(sorted(workers), 0)
    placed: dict[InstanceName, str] = {}
    homeless: list[InstanceName] = []
    for instance in instances:
        worker = assigned.get(instance)
        if worker in loads:
            placed[instance] = worker
            loads[worker] += 1
        # It counts for no worker's load: the worker may be gone.
        elif worker is not None and worker in kept:
            placed[instance] = worker
        else:
            homeless.append(instance)
    if not loads:
        return placed
    for instance in homeless:
        # Among workers with equally few instances, the first by name.
        worker = min(loads, key=lambda worker: (loads[worker], worker))
        placed[instance] = worker
        loads[worker] += 1
    if not balances:
        return placed
    # Move instances from workers above their share to workers below it.
    share, rest = divmod(sum(loads.values()), len(loads))
    # The workers with most instances keep the ``rest`` ones beyond equal shares: so fewest move.
    # Ties are decided by name, so that every leader decides alike.
    order = sorted(loads, key=lambda worker: (-loads[worker], worker))
    shares = {worker: share + (rank < rest) for rank, worker in enumerate(order)}
    # A worker above its share gives a negative number, and so no entry. There are as many entries
    # as instances above shares.
    takers = [worker for worker in sorted(loads) for _ in range(shares[worker] - loads[worker])]
    # In an order of names, so that the same facts give the same moves to every leader.
    for instance in sorted(placed, reverse=True):
        worker = placed[instance]
        if takers and worker in loads and loads[worker] > shares[worker]:
            loads[worker] -= 1
            placed[instance] = takers.pop(0)
            loads[placed[instance]] += 1
    return placed
