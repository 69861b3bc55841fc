"""Proves what becomes of the copy of a state when its instance leaves the worker or comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.geminga_functions.runtime.fake_instances import (
    FOR_EVER_S,
    ONE,
    TWO,
    World,
    metadata,
)

from geminga_functions.runtime.reports import InstanceState

REMOVING_S = 1.0


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time knows no threads: what is done in one takes a while here."""

    async def later(work: Callable[..., object], *told: Any, **options: Any) -> object:
        await asyncio.sleep(REMOVING_S)
        return work(*told, **options)

    monkeypatch.setattr(asyncio, "to_thread", later)


async def test_what_an_instance_copied_of_its_state_goes_where_it_went(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.instances:
        world.lease(FOR_EVER_S)
        world.instances.assign({ONE: metadata(), TWO: metadata()})
        copies = {name: world.instances.directory_of(name) / ".state" for name in (ONE, TWO)}
        for name, copy in copies.items():
            await world.settled(name)
            copy.mkdir()
        await world.instances.restart(ONE)
        assert copies[ONE].exists()
        world.instances.assign({TWO: metadata()})
        await world.instances.ended(ONE)
        assert not copies[ONE].exists()
    assert copies[TWO].exists()  # for the next run of the worker


async def test_an_instance_that_comes_back_while_its_copy_is_removed_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.instances:
        world.lease(FOR_EVER_S)
        world.instances.assign({ONE: metadata(1)})
        await world.settled()
        (world.instances.directory_of(ONE) / ".state").mkdir()
        world.instances.assign({})
        await asyncio.sleep(0.5 + REMOVING_S / 2)  # it has stopped, and is not yet forgotten
        world.instances.assign({ONE: metadata(2)})
        report = await world.settled(ONE, 2)
        assert (report.state, report.version) == (InstanceState.RUNNING, 2)
        assert len(world.runner.running(ONE)) == 1
        assert not (world.instances.directory_of(ONE) / ".state").exists()
