"""Runs a user's scenario, a Python file with ``async def scenario(cluster)``, from one seed."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

from geminga_scenarios.cluster import SHAPES, Cluster, Shape, Sizes
from geminga_scenarios.errors import NoScenario
from geminga_scenarios.seed_run import RunOptions, SeedResult, run_seed
from geminga_scenarios.simulated_cluster import SCENARIO, SimulatedCluster
from geminga_scenarios.verdicts import raise_loop_failures
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

# On how many bookies an entry is, where there are enough.
COPIES = 3
ScenarioFunction = Callable[[SimulatedCluster], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster that a scenario runs on. What is None, the seed chooses."""

    bookies: int | None = None
    brokers: int | None = None
    proxies: int = 0
    # A scenario that runs longer has failed; virtual seconds.
    time_limit_s: float = 3600.0

    def shape(self, seed: int) -> Shape:
        """The cluster of this seed; an entry is on three bookies, or on all of fewer."""
        # A stream of its own, before there is a world: a setting that is given here shifts no other
        # draw.
        shape = Random(f"{seed}/shape").choice(SHAPES)  # noqa: S311 -- chance, not secrecy
        if self.bookies is not None:
            copies = min(self.bookies, COPIES)
            #     bookies          1        2        3 and more
            #     ensemble, write  1, 1     2, 2     3, 3
            #     ack              1        2        2, so that one of three may be down
            sizes = Sizes(copies, copies, min(copies, COPIES - 1))
            shape = replace(shape, bookies=self.bookies, sizes=sizes)
        return replace(shape, brokers=self.brokers or shape.brokers, proxies=self.proxies)


def load(path: Path) -> ScenarioFunction:
    """Import the file and return its scenario. Raises ``NoScenario``.

    Each call executes the file again: no seed sees what another one left in its variables.
    """
    spec = spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise NoScenario(f"{path} is no Python file")
    # It is not entered into ``sys.modules``, where the next seed would find it. Modules that it
    # imports are entered there: what these keep in variables does outlive a seed in the same
    # process.
    module = module_from_spec(spec)
    # A scenario may import modules that stand beside it.
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise NoScenario(f"{path} cannot be imported: {error!r}") from error
    found: ScenarioFunction | None = getattr(module, SCENARIO, None)
    if not inspect.iscoroutinefunction(found):
        raise NoScenario(f"{path} defines no `async def scenario(cluster)`")
    return found


def run(path: Path, setup: Setup, seed: int) -> Outcome[None]:
    """Run the scenario once. Raises what the scenario raises, and what failed in the background."""
    scenario, shape = load(path), setup.shape(seed)

    async def live() -> None:
        async with World() as world:
            # Not entered: leaving the world ends all its processes at once.
            processes = Cluster(world, shape)
            await processes.open()
            cluster = SimulatedCluster(world, processes)
            # The scenario has a host of its own, whose process lives until the world ends.
            host = world.host(SCENARIO)
            # ``host.run`` needs a process to run in. A fault that a scenario does to its own host
            # ends the scenario.
            host.start(lambda _: asyncio.Event().wait())
            await host.run(scenario(cluster))
            # Only where the scenario itself ended well: what it raised says more.
            for program in cluster.programs:
                for failure in program.failures:
                    raise failure
            raise_loop_failures(world)

    return simulate(seed, live, time_limit_s=setup.time_limit_s)


def run_scenario_seed(path: Path, setup: Setup, seed: int, options: RunOptions) -> SeedResult:
    """``run_seed`` for a scenario; it can be pickled for another process. Raises ``NoScenario``."""
    return run_seed(partial(run, path, setup), seed, options)


def smaller_setups(setup: Setup, seed: int) -> list[Setup]:
    """The clusters that are smaller than the one of this seed, the smallest first."""
    shape = setup.shape(seed)
    # Bookies and brokers: with one bookie, with just enough for three copies, with one to spare.
    # Ordered by the hosts of a run, which is what makes it long.
    sizes = ((1, 1), (1, 2), (3, 1), (3, 2), (4, 1), (4, 2))
    return [
        replace(setup, bookies=bookies, brokers=brokers)
        for bookies, brokers in sizes
        if (bookies, brokers) != (shape.bookies, shape.brokers)
        and bookies <= shape.bookies
        and brokers <= shape.brokers
    ]
