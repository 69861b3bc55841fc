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
from geminga_scenarios.simulated_cluster import SCENARIO, SimulatedCluster
from geminga_scenarios.telling import Orders, Told, tell
from geminga_scenarios.verdicts import raise_loop_failures
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

COPIES = 3
ScenarioFunction = Callable[[SimulatedCluster], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster that a scenario runs on; None leaves a number to the seed.

    ``time_limit_s``: the virtual seconds after which a scenario has failed.
    """

    bookies: int | None = None
    brokers: int | None = None
    proxies: int = 0
    time_limit_s: float = 3600.0

    def shape(self, seed: int) -> Shape:
        """How the cluster of this seed looks; an entry is on three bookies, or on all."""
        shape = Random(f"{seed}/shape").choice(SHAPES)  # noqa: S311 -- chance, not secrecy
        if self.bookies is not None:
            copies = min(self.bookies, COPIES)
            sizes = Sizes(copies, copies, min(copies, COPIES - 1))
            shape = replace(shape, bookies=self.bookies, sizes=sizes)
        return replace(shape, brokers=self.brokers or shape.brokers, proxies=self.proxies)


def load(path: Path) -> ScenarioFunction:
    """The scenario in a file, which runs anew: no seed sees what another left in its variables.

    Raises ``NoScenario``.
    """
    spec = spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise NoScenario(f"{path} is no Python file")
    module = module_from_spec(spec)
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
    """One run of the scenario. Raises what the scenario raises, and what went wrong unseen."""
    main = partial(_live, load(path), setup.shape(seed))
    return simulate(seed, main, time_limit_s=setup.time_limit_s)


async def _live(scenario: ScenarioFunction, shape: Shape) -> None:
    async with World() as world:
        processes = Cluster(world, shape)
        await processes.open()
        cluster = SimulatedCluster(world, processes)
        host = world.host(SCENARIO)
        host.start(lambda _: asyncio.Event().wait())
        await host.run(scenario(cluster))
        cluster.raise_failures()
        raise_loop_failures(world)


def tell_scenario(path: Path, setup: Setup, seed: int, orders: Orders) -> Told:
    """``tell`` for a scenario, for whichever process it is handed to. Raises ``NoScenario``."""
    return tell(partial(run, path, setup), seed, orders)


def smaller_setups(setup: Setup, seed: int) -> list[Setup]:
    """The clusters that are smaller than that of this seed, the smallest first."""
    shape = setup.shape(seed)
    sizes = ((1, 1), (1, 2), (3, 1), (3, 2), (4, 1), (4, 2))
    return [
        replace(setup, bookies=bookies, brokers=brokers)
        for bookies, brokers in sizes
        if (bookies, brokers) != (shape.bookies, shape.brokers)
        and bookies <= shape.bookies
        and brokers <= shape.brokers
    ]
