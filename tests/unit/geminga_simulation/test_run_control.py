"""Proves that a story is told with the faults that were ordered, and they change no more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from geminga_simulation.conditions import DiskConditions
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FULL_MENU, FaultMenu
from geminga_simulation.run_control import RunControl, controlled, dish_names, dishes_of, only
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

BUSY = replace(FULL_MENU, crash_rate=3.0, pause_rate=3.0, reset_rate=0.0)
STORY_S = 20.0
# Which seed draws what changes with every new dish.
SEED = next(seed for seed in range(100) if BUSY.drawn(Random(seed)).pause_rate)


async def story() -> None:
    random = Random(SEED)
    async with World() as world:
        hosts = [world.host(f"host-{number}") for number in range(3)]
        for host in hosts:
            host.start(lambda _: asyncio.Event().wait())
        async with FaultInjector(world, BUSY.drawn(random), hosts):
            await asyncio.sleep(STORY_S)
        raise LookupError("the story fails")


def told(control: RunControl) -> RunControl:
    with controlled(control), pytest.raises(LookupError):
        simulate(1, story)
    return control


def test_a_menu_is_told_by_its_dishes() -> None:
    names = dish_names(FaultMenu)
    assert {"crash", "half_open", "clock_jump", "network", "disk", "coordination"} <= set(names)
    assert dishes_of(FULL_MENU) == names
    assert dishes_of(FaultMenu()) == []
    assert dishes_of(only(FULL_MENU, ["crash", "disk"])) == ["crash", "disk"]
    assert only(FULL_MENU, ["crash"]).disk == DiskConditions()


def test_of_a_failed_story_is_known_what_was_done_and_when_it_ended() -> None:
    control = told(RunControl())
    assert control.loop is not None
    assert control.loop.time() >= STORY_S
    assert control.dishes == dishes_of(BUSY.drawn(Random(SEED)))
    kinds = " ".join(text for _, text in control.events)
    assert "stands still" in kinds
    ends = ("starts", "joined again")
    assert all(at < STORY_S or any(end in text for end in ends) for at, text in control.events)


def test_what_is_ordered_is_served_whatever_a_seed_draws() -> None:
    control = told(RunControl(menu=["pause", "kill"]))
    assert control.dishes == ["kill", "pause"]
    kinds = " ".join(text for _, text in control.events)
    assert "stands still" in kinds
    assert "crash" not in kinds
    assert told(RunControl(menu=[])).dishes == []


def test_faults_that_end_earlier_are_the_same_until_then() -> None:
    whole = told(RunControl()).events
    end_s = whole[len(whole) // 2][0]
    shorter = told(RunControl(faults_end_s=end_s)).events
    until = [event for event in whole if event[0] <= end_s]
    assert shorter[: len(until)] == until
    assert all("starts" in text or "joined" in text for _, text in shorter[len(until) :])


def test_a_recording_is_kept_where_the_story_fails() -> None:
    control = told(RunControl(is_recorded=True))
    assert control.loop is not None
    assert control.loop.trace.lines
