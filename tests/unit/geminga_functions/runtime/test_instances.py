"""Proves that what runs follows what is assigned, one life after the other, under a lease alone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.geminga_functions.runtime.fake_instances import (
    FOR_EVER_S,
    ONE,
    TWO,
    World,
    metadata,
)

from geminga_functions.errors import PackageRefused
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.runtime.instances import (
    TRACE_CHARACTERS_MAX,
    shortened,
)
from geminga_functions.runtime.reports import InstanceState
from geminga_functions.runtime.runner import Ending
from geminga_protocol.functions.functions_pb2 import (
    STOPPED,
    FunctionMetaData,
)

REMOVING_S = 1.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    async with world.instances:
        yield world


async def test_an_instance_runs_once_it_is_assigned_and_there_is_a_lease(world: World) -> None:
    world.instances.assign({ONE: metadata(3)})
    await asyncio.sleep(10)
    assert world.runner.begun == []
    world.lease(FOR_EVER_S)
    report = await world.settled()
    assert (report.state, report.version, report.restarts) == (InstanceState.RUNNING, 3, 0)
    start = world.runner.last.order.start
    assert (start.version, start.number, start.worker_id) == (3, 0, "w-1")
    assert (start.package, start.import_paths) == ("/f.py", "/a:/b")
    assert start.lease_until_s == FOR_EVER_S + 10
    assert os.path.isdir(start.state_directory)  # noqa: ASYNC240,PTH112 - it takes no time
    assert await world.instances.status(ONE, 2) == "3 in 2"


async def test_an_instance_is_present_until_it_has_ended(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata(), TWO: metadata()})
    await world.settled(ONE)
    await world.settled(TWO)
    world.instances.assign({TWO: metadata()})
    assert world.present() == {ONE, TWO}
    await asyncio.sleep(0.4)
    assert world.present() == {ONE, TWO}
    report = world.instances.report(ONE)
    assert report is not None
    assert report.state is InstanceState.STOPPING
    await asyncio.sleep(0.2)
    assert world.present() == {TWO}
    assert len(world.runner.running(TWO)) == 1


async def test_an_update_ends_the_old_version_before_the_new_one_starts(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata(1)})
    await world.settled()
    world.instances.assign({ONE: metadata(2, package="q")})
    world.instances.assign({ONE: metadata(3, package="r")})
    report = await world.settled(ONE, 3)
    assert report.state is InstanceState.RUNNING
    assert [each.order.start.version for each in world.runner.begun] == [1, 3]
    assert world.packages.used == ["r"]


async def test_a_version_that_changes_nothing_for_an_instance_leaves_it_alone(
    world: World,
) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata(1), TWO: metadata(1)})
    await world.settled(ONE)
    await world.settled(TWO)
    stopping = metadata(2)
    stopping.instanceStates[1] = STOPPED
    world.instances.assign({ONE: stopping, TWO: stopping})
    assert (await world.settled(TWO, 2)).state is InstanceState.STOPPED
    assert (await world.settled(ONE, 2)).state is InstanceState.RUNNING
    assert len(world.runner.begun) == 2
    assert not world.runner.running(TWO)


async def test_an_instance_that_is_assigned_again_while_it_stops_runs_again(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata()})
    await world.settled()
    world.instances.assign({})
    world.instances.assign({ONE: metadata()})
    await asyncio.sleep(1)
    assert world.present() == {ONE}
    assert len(world.runner.running(ONE)) == 1
    assert len(world.runner.begun) == 2


async def test_a_failure_is_kept_and_the_instance_starts_again_later_each_time(
    world: World,
) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata()})
    times: list[float] = []
    for number in range(12):
        await world.runner.has_begun(number + 1)
        times.append(world.clock.monotonic())
        world.runner.last.end(Ending(f"Traceback {number}", is_user_error=True))
        await asyncio.sleep(0.01)
        failed = await world.settled()
        assert failed.state is InstanceState.FAILED
        assert failed.failure is not None
        assert (failed.failure.trace, failed.failure.is_user_error) == (f"Traceback {number}", True)
    await world.runner.has_begun(13)
    delays = [later - earlier for earlier, later in pairwise(times)]
    assert delays[0] <= 1.2
    assert max(delays) <= 60.2
    assert delays[-1] >= 30
    report = await world.settled()
    assert (report.state, report.restarts) == (InstanceState.RUNNING, 12)
    assert report.failure is not None


async def test_an_instance_that_ran_well_for_long_starts_again_soon(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata()})
    caplog.set_level(logging.WARNING)
    for number, seconds in enumerate((0, 0, 0, 0, 0, 100)):
        await world.runner.has_begun(number + 1)
        await asyncio.sleep(seconds)
        world.runner.last.end(Ending("no"))
        await asyncio.sleep(0.01)
    assert caplog.records[-1].__dict__["delay_s"] <= 1


async def test_the_end_of_the_lease_kills_and_the_next_lease_starts_again(world: World) -> None:
    world.lease(2)
    world.instances.assign({ONE: metadata()})
    await world.settled()
    await asyncio.sleep(1)
    world.lease(2)
    assert world.runner.last.leases == [3.0]
    await asyncio.sleep(1.9)
    assert world.runner.running(ONE)
    await asyncio.sleep(0.2)
    assert not world.runner.running(ONE)
    assert world.present() == {ONE}
    await asyncio.sleep(5)
    assert not world.runner.running(ONE)
    world.lease(2)
    await asyncio.sleep(0)
    report = await world.settled()
    assert report.failure is None
    assert len(world.runner.begun) == 2


async def test_an_instance_that_left_at_the_end_of_its_lease_has_not_failed(world: World) -> None:
    world.lease(2)
    world.instances.assign({ONE: metadata()})
    await world.settled()
    await asyncio.sleep(1.95)
    world.runner.last.end(Ending("the lease has ended", is_lease_over=True))
    await asyncio.sleep(1)
    assert len(world.runner.begun) == 1
    world.lease(2)
    await asyncio.sleep(0)
    report = await world.settled()
    assert (report.state, report.failure) == (InstanceState.RUNNING, None)
    assert len(world.runner.begun) == 2


async def test_a_lease_that_ends_or_goes_on_while_a_process_is_made_is_heeded(
    world: World,
) -> None:
    world.runner.starts_in_s = 1.0
    world.lease(0.5)
    world.instances.assign({ONE: metadata()})
    await asyncio.sleep(1.5)
    assert len(world.runner.begun) == 1
    assert not world.runner.running(ONE)
    world.lease(2)
    await asyncio.sleep(0.5)
    world.lease(4)
    await asyncio.sleep(1)
    assert world.runner.last.order.start.lease_until_s == 3.5
    assert world.runner.last.leases == [6.0]
    assert world.runner.running(ONE)


async def test_a_lease_that_is_over_or_shorter_changes_nothing(world: World) -> None:
    world.lease(5)
    world.lease(3)
    world.lease(-1)
    assert world.instances.lease_until_s == 5
    world.instances.assign({ONE: metadata()})
    await world.settled()
    await asyncio.sleep(4)
    assert world.runner.running(ONE)


async def test_a_package_that_cannot_be_used_is_the_failure(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.packages.refusal = PackageRefused("f.jar is a Java archive")
    world.instances.assign({ONE: metadata()})
    report = await world.settled()
    assert report.failure is not None
    assert (report.failure.trace, report.failure.is_user_error) == ("f.jar is a Java archive", True)
    world.packages.refusal = None
    world.instances.assign({ONE: metadata(1, package="better")})
    assert (await world.settled(ONE, 1)).state is InstanceState.RUNNING


async def test_a_package_that_cannot_be_used_is_not_tried_without_a_lease(world: World) -> None:
    world.packages.refusal = PackageRefused("the client is not connected")
    world.instances.assign({ONE: metadata()})
    await asyncio.sleep(10)
    assert world.packages.refusals == 1
    world.packages.refusal = None
    world.lease(FOR_EVER_S)
    assert (await world.settled()).state is InstanceState.RUNNING


async def test_a_machine_that_starts_no_process_is_not_the_users_fault(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.runner.error = OSError("no more processes")
    world.instances.assign({ONE: metadata()})
    report = await world.settled()
    assert report.failure is not None
    assert not report.failure.is_user_error
    assert "no more processes" in report.failure.trace


async def test_a_mistake_of_ours_is_a_failure_with_a_pause_behind_it(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.runner.error = AssertionError("it cannot be")
    world.instances.assign({ONE: metadata()})
    report = await world.settled()
    assert report.failure is not None
    assert (
        report.failure.trace == "the worker cannot run the instance: AssertionError('it cannot be')"
    )
    assert report.state is InstanceState.FAILED
    world.runner.error = None
    await world.runner.has_begun(1)
    assert world.clock.monotonic() >= 0.5


async def test_a_function_that_is_never_loaded_fails_and_lets_others_start(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.runner.loads = False
    world.instances.assign({ONE: metadata()})
    await asyncio.sleep(1)
    world.runner.loads = True
    world.instances.assign({ONE: metadata(), TWO: metadata()})
    assert (await world.settled(TWO)).state is InstanceState.RUNNING
    assert world.clock.monotonic() < 10
    report = await world.settled(ONE)
    assert report.failure is not None
    assert report.failure.trace == "the function was not loaded within 60 s"
    assert 60 <= world.clock.monotonic() < 70


async def test_a_restart_ends_the_instance_and_starts_it_anew(world: World) -> None:
    world.lease(FOR_EVER_S)
    world.instances.assign({ONE: metadata()})
    await world.settled()
    assert await world.instances.restart(ONE)
    assert not world.runner.running(ONE)
    report = await world.settled()
    assert report.restarts == 1
    assert len(world.runner.begun) == 2
    assert not await world.instances.restart(TWO)


async def test_closing_stops_all_in_order_and_at_the_same_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.instances:
        world.lease(FOR_EVER_S)
        world.instances.assign({ONE: metadata(), TWO: metadata()})
        await world.settled(ONE)
        await world.settled(TWO)
        world.instances.assign({TWO: metadata()})  # the stop of the first is under way
        await asyncio.sleep(0.1)
        before_s = world.clock.monotonic()
    assert world.clock.monotonic() - before_s == pytest.approx(0.5)
    assert not world.runner.running(ONE)
    assert not world.runner.running(TWO)


async def test_waiting_for_an_instance_that_never_comes_has_an_end(world: World) -> None:
    with pytest.raises(TimeoutError):
        await world.instances.settled(ONE, 0, 5)


def test_a_long_trace_keeps_its_beginning_and_its_end() -> None:
    trace = "begin" + "x" * 2 * TRACE_CHARACTERS_MAX + "end"
    short = shortened(trace)
    assert len(short) < TRACE_CHARACTERS_MAX + 20
    assert short.startswith("begin")
    assert short.endswith("end")


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_no_instance_runs_twice_or_without_a_lease(
    world: World, seed: int
) -> None:
    """The runner looks that none runs twice; the rest is looked at after each event."""
    random = Random(seed)
    instances, runner = world.instances, world.runner
    names = [InstanceName(FunctionName("t", "n", f"f{number}"), 0) for number in range(3)]
    assigned: dict[InstanceName, FunctionMetaData] = {}
    version = 0
    for _ in range(150):
        match random.randrange(8):
            case 0:
                version += 1
                assigned[random.choice(names)] = metadata(version, package=str(version))
            case 1:
                assigned.pop(random.choice(names), None)
            case 2 | 3:
                world.lease(random.uniform(0.1, 4))
            case 4 if runner.begun:
                random.choice(runner.begun).end(Ending("no"))
            case 5:
                runner.loads = random.random() < 0.8
                runner.error = OSError("no memory") if random.random() < 0.2 else None
                runner.starts_in_s = random.choice([0.0, 0.1, 3.0])
            case 6:
                asked = instances.restart(random.choice(names))
                await asyncio.wait([asyncio.ensure_future(asked)], timeout=random.random())
            case _:
                await asyncio.sleep(random.uniform(0, 3))
        instances.assign(dict(assigned))
        await asyncio.sleep(random.choice([0, 0, 0.01, 0.6]))
        running = [each.order.name for each in runner.begun if not each.ended.done()]
        assert set(running) <= {report.name for report in instances.reports()}
        assert instances.lease.is_set() or not running
    # In the end all that is assigned runs, as it is wanted, and nothing else.
    runner.loads, runner.error = True, None
    world.lease(FOR_EVER_S)
    await asyncio.sleep(200)
    ends = [each for each in runner.begun if not each.ended.done()]
    assert {each.order.name: each.order.start.version for each in ends} == {
        name: wanted.version for name, wanted in assigned.items()
    }
    assert sorted(world.packages.used) == sorted(
        wanted.packageLocation.packagePath for wanted in assigned.values()
    )


async def test_an_assignment_while_the_service_closes_does_not_hold_it_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.instances:
        world.lease(FOR_EVER_S)
        world.instances.assign({ONE: metadata(1)})
        await world.settled()
        # Another worker has ended, say: the leader gives its instances to this one.
        asyncio.get_running_loop().call_later(
            0.1, world.instances.assign, {ONE: metadata(1), TWO: metadata(1)}
        )
        began_s = world.clock.monotonic()
    assert world.clock.monotonic() - began_s == pytest.approx(0.5)  # what stopping takes
    assert len(world.runner.begun) == 1


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time knows no threads: what is done in one takes a while here."""

    async def later(work: Callable[..., object], *told: Any, **options: Any) -> object:
        await asyncio.sleep(REMOVING_S)
        return work(*told, **options)

    monkeypatch.setattr(asyncio, "to_thread", later)


@pytest.mark.usefixtures("slow_disk")
async def test_the_local_copy_of_a_state_is_removed_where_its_instance_has_left(
    tmp_path: Path,
) -> None:
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


@pytest.mark.usefixtures("slow_disk")
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
