"""Proves that an instance's process gets its orders, and ends whatever its function does."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from geminga_functions.instance.messages import Start
from geminga_functions.names import InstanceName
from geminga_functions.runtime.output import OutputFile
from geminga_functions.runtime.process import (
    INSTANCE,
    ProcessInstance,
    ProcessRunner,
    end_orphans,
)
from geminga_functions.runtime.runner import Order
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.clock import SystemClock

pytestmark = pytest.mark.real_loop

BARE = str(Path(__file__).with_name("bare_instance.py"))
NAME = InstanceName.parse("public/default/f:0")
LOG_BYTES_MAX = 256 * 1024


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[ProcessRunner]:
    def output_of(name: InstanceName) -> OutputFile:
        return OutputFile(
            tmp_path / f"{name.function.name}.log",
            SystemClock(),
            file_bytes_max=LOG_BYTES_MAX,
            bytes_per_s_max=1024 * 1024,
            tail_bytes=1024,
        )

    environment = {**os.environ, "GEMINGA_SECRET": "worker's own"}
    async with ProcessRunner(environment, output_of, [BARE]) as opened:
        yield opened


def order(tmp_path: Path, does: str, memory_bytes: int = 0) -> Order:
    start = Start(
        details=FunctionDetails(userConfig=does).SerializeToString(),
        number=0,
        version=1,
        worker_id="w",
        cluster="c",
        service_url="",
        web_url="",
        package="",
        import_paths="",
        state_directory=str(tmp_path),
        lease_until_s=7.0,
    )
    return Order(NAME, start, Path(sys.executable), memory_bytes)


async def started(runner: ProcessRunner, one: Order) -> ProcessInstance:
    instance = await runner.start(one)
    async with asyncio.timeout(20):
        await instance.started.wait()
    return instance


async def test_an_instance_starts_and_answers_and_stops(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await started(runner, order(tmp_path, ""))
    assert await instance.status(10) == '{"lease": 7.0}'
    instance.extend_lease(9.0)
    assert await instance.status(10) == '{"lease": 9.0}'
    await instance.stop(10)
    assert instance.ended.result().trace == ""


async def test_a_failure_is_told_with_its_traceback(runner: ProcessRunner, tmp_path: Path) -> None:
    instance = await runner.start(order(tmp_path, "fail"))
    ending = await asyncio.wait_for(instance.ended, 20)
    assert ending.trace == "Traceback: no such thing"
    assert ending.is_user_error
    assert not instance.started.is_set()


async def test_an_instance_that_ends_with_its_lease_is_no_failure(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await runner.start(order(tmp_path, "expire"))
    ending = await asyncio.wait_for(instance.ended, 20)
    assert (ending.is_lease_over, ending.is_user_error) == (True, False)


async def test_a_status_request_ends_with_the_instance_that_it_asks(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await started(runner, order(tmp_path, "exit when asked"))
    async with asyncio.timeout(10):
        assert await instance.status(100) is None


@pytest.mark.parametrize(
    ("does", "trace"),
    [
        (
            "exit",
            "the process of the instance exited with code 3; the last that it wrote:\ngoodbye",
        ),
        ("crash", "the process of the instance was killed by SIGSEGV"),
        ("be killed", "the process of the instance was killed by SIGKILL, as code is that keeps"),
    ],
)
async def test_a_process_without_a_last_message_is_reported_by_its_exit_and_output(
    runner: ProcessRunner, tmp_path: Path, does: str, trace: str
) -> None:
    instance = await runner.start(order(tmp_path, does))
    assert (await asyncio.wait_for(instance.ended, 20)).trace.startswith(trace)


@pytest.mark.parametrize("does", ["loop", "ignore stop"])
async def test_an_instance_that_does_not_stop_is_killed(
    runner: ProcessRunner, tmp_path: Path, does: str
) -> None:
    instance = await started(runner, order(tmp_path, does))
    assert await instance.status(0.1) is None or does == "ignore stop"
    await asyncio.wait_for(instance.stop(0.2), 10)
    assert instance.ended.done()
    assert has_ended(instance.pid, 0)


async def test_processes_that_a_function_has_started_end_with_it(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance, child = await with_child(runner, tmp_path, "fork")
    await instance.stop(5)
    assert has_ended(child, 10)


async def test_a_process_that_left_the_group_does_not_hold_up_the_end_of_the_instance(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance, child = await with_child(runner, tmp_path, "fork and leave")
    try:
        await asyncio.wait_for(instance.stop(5), 10)
        assert instance.ended.done()
    finally:
        os.kill(child, signal.SIGKILL)


async def with_child(
    runner: ProcessRunner, tmp_path: Path, does: str
) -> tuple[ProcessInstance, int]:
    """An instance that has started another process, which holds its output open."""
    instance = await started(runner, order(tmp_path, does))
    log = tmp_path / "f.log"
    async with asyncio.timeout(10):
        while not (log.exists() and log.read_text().startswith("child ")):
            await instance.status(1)
    child = int(log.read_text().split()[1])
    assert not has_ended(child, 0)
    return instance, child


def has_ended(pid: int | None, timeout_s: float) -> bool:
    """Has the process ended within so long? It need not be reaped yet."""
    assert pid is not None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


async def test_memory_is_limited_by_the_functions_resources(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await runner.start(order(tmp_path, "eat memory", 256 * 1024 * 1024))
    ending = await asyncio.wait_for(instance.ended, 60)
    mebibytes = int(ending.trace.removeprefix("MemoryError after ").removesuffix(" MiB"))
    assert 200 <= mebibytes <= 400


async def test_output_without_end_fills_no_disk_and_delays_no_answer(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await started(runner, order(tmp_path, "print"))
    old = tmp_path / "f.log.old"
    async with asyncio.timeout(20):
        while not old.exists():
            assert await instance.status(5) is not None
    await instance.stop(1)
    # A chunk may go over it; no more is written to a file that is full.
    size_max = LOG_BYTES_MAX + 64 * 1024
    assert all(file.stat().st_size <= size_max for file in (old, tmp_path / "f.log"))


async def test_settings_of_the_worker_are_kept_from_functions(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await started(runner, order(tmp_path, ""))
    environment = environment_of(instance.pid)
    assert b"GEMINGA_SECRET" not in environment
    assert b"PATH=" in environment
    await instance.stop(5)


def environment_of(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_the_end_of_the_runner_ends_instances_that_still_run(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    instance = await started(runner, order(tmp_path, ""))
    await runner.__aexit__(None, None, None)
    assert instance.ended.done()
    assert has_ended(instance.pid, 0)


def held_by(lock: Path, *words: str) -> subprocess.Popen[bytes]:
    """A process that holds ``lock`` open, and has these words among its own."""
    with lock.open() as file:
        code = "import time; time.sleep(600)"
        return subprocess.Popen([sys.executable, "-c", code, *words], pass_fds=[file.fileno()])


def test_instances_that_a_killed_worker_left_are_killed_by_the_next_worker(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")  # of an earlier life: in a container ids come again
    orphan = held_by(lock, "-m", INSTANCE)
    successor = held_by(lock, "functions-worker")  # it waits for the lock too
    try:
        assert end_orphans(lock) == 1
        assert orphan.wait(10) == -signal.SIGKILL
        assert successor.poll() is None
        lock.write_text("4194305\n")  # more than Linux has
        assert end_orphans(lock) == 0
    finally:
        successor.kill()
        successor.wait()


def test_instances_of_a_worker_that_runs_are_left_alone(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    owner, instance = held_by(lock, "functions-worker"), held_by(lock, "-m", INSTANCE)
    lock.write_text(f"{owner.pid}\n")
    try:
        assert end_orphans(lock) == 0
        assert instance.poll() is None
    finally:
        for each in (owner, instance):
            each.kill()
            each.wait()


def test_a_directory_without_a_lock_has_no_orphans(tmp_path: Path) -> None:
    assert end_orphans(tmp_path / "lock") == 0
