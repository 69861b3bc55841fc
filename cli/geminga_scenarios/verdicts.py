"""What every simulation test does with its seeds and with what the simulated world heard of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.simulate import Outcome
from geminga_simulation.world import World

# How a service logs that work of its own ended by an error that nobody handled.
UNHANDLED = ("background work failed", "task failed")

ResultT = TypeVar("ResultT")


def results(run: Callable[[int], Outcome[ResultT]], seeds: Iterable[int]) -> Iterator[ResultT]:
    """What the story of each seed told; a failure names its seed."""
    for seed in seeds:
        try:
            result = run(seed).result
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        yield result


def raise_failures(world: World) -> None:
    """A process may end by an error that it has a name for; not by a broken promise or a bug."""
    for host in world.hosts.values():
        for failure in host.failures:
            raise failure
    raise_loop_failures(world)


def raise_loop_failures(world: World) -> None:
    """Nothing may fail where nobody waits for it, also where it then begins anew."""
    for report in world.loop.failures:
        what = f"{report['host']}: {report['message']}"
        raise InvariantViolated(what) from report.get("exception")
    for _, host_name, text in world.errors:
        if text.startswith(UNHANDLED):
            raise InvariantViolated(f"{host_name}: {text}")
