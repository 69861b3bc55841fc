"""What every simulation test does with its seeds, and with failures that the world has recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from geminga_simulation.errors import InvariantViolated
from geminga_simulation.simulate import Outcome
from geminga_simulation.world import World

# The log events of a service whose own work ended by an error that nothing handled. The texts of
# ``Service`` in ``geminga_runtime.service``: one for lasting work, one for other tasks.
UNHANDLED = ("background work failed", "task failed")

ResultT = TypeVar("ResultT")


def results(run: Callable[[int], Outcome[ResultT]], seeds: Iterable[int]) -> Iterator[ResultT]:
    """Yield the result of each seed; an error names the seed that it comes from."""
    for seed in seeds:
        try:
            result = run(seed).result
        except BaseException as error:
            # Not another exception around it: a caller that expects a class of errors still sees
            # it.
            error.add_note(f"seed {seed}")
            raise
        yield result


def raise_failures(world: World) -> None:
    """Raise the first error that ended a host's process; then do as ``raise_loop_failures``.

    Processes handle the errors that they have a name for, and start again. One that ends with an
    error all the same has broken a promise, or has a bug.
    """
    # Hosts before the loop: the error that ended a process is mostly the cause of what others
    # report.
    for host in world.hosts.values():
        for failure in host.failures:
            raise failure
    raise_loop_failures(world)


def raise_loop_failures(world: World) -> None:
    """Raise the first failure that no code waited for, even where the work was started again."""
    for report in world.loop.failures:
        what = f"{report['host']}: {report['message']}"
        raise InvariantViolated(what) from report.get("exception")
    # A service that works in the background logs how it failed, and goes on or is started again.
    # Such an error reaches neither the host nor the loop: ``spawn_lasting`` has handled it.
    for _, host_name, text in world.errors:
        if text.startswith(UNHANDLED):
            raise InvariantViolated(f"{host_name}: {text}")
