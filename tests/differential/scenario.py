"""What a scenario is: a name, a function that talks to a broker, and what is known to differ."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.differential.not_yet import NOT_YET
from tests.differential.patience import FACTOR, patient
from tests.differential.plain import Json
from tests.differential.transcript import Line
from tests.differential.world import World

SCENARIOS = Path(__file__).with_name("scenarios")
RECORDED = Path(__file__).with_name("recorded")
SCENARIO_TIMEOUT_S = 60.0
# Most of a scenario is waiting for nothing to come.
AT_ONCE = 6
# A slow disk, or a machine that does something else, may take longer than a client waits.
MUCH_PATIENCE = 6.0

Talk = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A difference that is meant: wherever the recorded transcript has the value ``theirs``,
    anything inside a line, ours has ``ours``; tuples stand for whole lines, one after the other.
    """

    theirs: Json
    ours: Json
    reason: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One conversation with a broker, and in what Geminga's part of it differs by intention."""

    name: str
    group: str
    talk: Talk
    wanted: Sequence[Wanted] = ()

    @property
    def not_yet(self) -> str:
        """Why Geminga cannot follow it so far; empty if it can."""
        return NOT_YET.get(f"{self.group}/{self.name}", "")

    @property
    def path(self) -> Path:
        """Where the real broker's transcript is kept."""
        return RECORDED / self.group / f"{self.name}.json"

    async def run(self, service_url: str, web_url: str) -> list[Line]:
        """Talk to a broker; returns what was said and heard."""
        async with World(self.name, service_url, web_url) as world:
            await self.talk(world)
            return world.finish()


async def run_all(
    chosen: Sequence[Scenario], service_url: str, web_url: str, *, at_once: int = AT_ONCE
) -> dict[str, list[Line] | Exception]:
    """The transcripts of these scenarios by name, or why there is none."""
    gate = asyncio.Semaphore(at_once)

    async def run(each: Scenario) -> list[Line] | Exception:
        try:
            async with gate, asyncio.timeout(patient(SCENARIO_TIMEOUT_S)):
                return await each.run(service_url, web_url)
        except Exception as error:  # noqa: BLE001  # it is this scenario's result
            return error

    results = await asyncio.gather(*(run(each) for each in chosen))
    return {each.name: result for each, result in zip(chosen, results, strict=True)}


async def run_patiently(
    chosen: Sequence[Scenario], service_url: str, web_url: str
) -> dict[str, list[Line] | Exception]:
    """The same one after the other, each with more time for what may come."""
    token = FACTOR.set(MUCH_PATIENCE)
    try:
        return await run_all(chosen, service_url, web_url, at_once=1)
    finally:
        FACTOR.reset(token)


_registered: dict[str, Scenario] = {}


def scenario(*, wanted: Sequence[Wanted] = ()) -> Callable[[Talk], Talk]:
    """Register a function as the scenario of its name."""

    def register(talk: Talk) -> Talk:
        register_scenario(talk.__name__.replace("_", "-"), talk, wanted=wanted)
        return talk

    return register


def register_scenario(name: str, talk: Talk, *, wanted: Sequence[Wanted] = ()) -> None:
    """Register a scenario under a name, for families of scenarios made in a loop."""
    assert name not in _registered, f"two scenarios named {name}"
    group = talk.__module__.rpartition(".")[2]
    _registered[name] = Scenario(name, group, talk, wanted)


def scenarios() -> list[Scenario]:
    """All there are, in the order of their files."""
    for path in sorted(SCENARIOS.glob("*.py")):
        importlib.import_module(f"tests.differential.scenarios.{path.stem}")
    return list(_registered.values())
