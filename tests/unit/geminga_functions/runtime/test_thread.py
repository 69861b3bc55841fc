"""Proves that an instance in a thread gets its orders, and that its end is known as it was."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from geminga_functions.errors import PackageRefused
from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Failed,
    Lease,
    Start,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.names import InstanceName
from geminga_functions.runtime.runner import Order
from geminga_functions.runtime.thread import ThreadInstance, ThreadRunner
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.control_codec import MessageReader

pytestmark = pytest.mark.real_loop


class BareInstance:
    """Answers what instances answer; what else it does, its user config says."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.thread: threading.Thread | None = None

    async def serve(self, channel: socket.socket) -> None:
        self.thread = threading.current_thread()
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        messages, does, lease = MessageReader(INSTANCE_CHANNEL), "", 0.0

        def send(message: object) -> None:
            writer.write(INSTANCE_CHANNEL.encode(message))

        try:
            while chunk := await reader.read(65536):
                for message in messages.feed(chunk):
                    match message:
                        case Start():
                            lease = message.lease_until_s
                            does = FunctionDetails.FromString(message.details).userConfig
                            if does == "fail":
                                send(Failed("Traceback: no", is_user_error=True))
                                return
                            send(Started())
                        case Lease(until_s):
                            lease = until_s
                        case StatusRequest(number):
                            send(StatusAnswer(number, str(lease)))
                        case Stop():
                            if does == "hang":
                                self.gate.wait()
                            if does == "ignore stop":
                                continue
                            if does == "exit":
                                sys.exit("goodbye")
                            send(Stopped())
                            return
                        case _:
                            pass
        finally:
            writer.close()


@pytest.fixture
def bare() -> BareInstance:
    return BareInstance()


@pytest.fixture
async def runner(bare: BareInstance) -> AsyncIterator[ThreadRunner]:
    async with ThreadRunner(bare.serve) as opened:
        yield opened


def order(does: str = "", python: Path | None = None) -> Order:
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
        state_directory="",
        lease_until_s=7.0,
    )
    return Order(InstanceName.parse("t/n/f:0"), start, python or Path(sys.executable), 0)


async def started(runner: ThreadRunner, does: str = "") -> ThreadInstance:
    instance = await runner.start(order(does))
    async with asyncio.timeout(10):
        await instance.started.wait()
    return instance


async def test_an_instance_runs_in_a_thread_of_its_own_until_it_is_stopped(
    runner: ThreadRunner, bare: BareInstance
) -> None:
    instance = await started(runner)
    assert bare.thread is not threading.main_thread()
    assert await instance.status(5) == "7.0"
    instance.extend_lease(8.0)
    assert await instance.status(5) == "8.0"
    await instance.stop(5)
    assert instance.ended.result().trace == ""


async def test_a_failure_is_reported_though_the_channel_ends_right_after_it(
    runner: ThreadRunner,
) -> None:
    instance = await runner.start(order("fail"))
    assert (await asyncio.wait_for(instance.ended, 5)).trace == "Traceback: no"


async def test_an_error_in_the_thread_ends_the_instance_alone() -> None:
    def broken(_: socket.socket) -> Coroutine[Any, Any, None]:
        raise SystemExit(3)

    async with ThreadRunner(broken) as runner:
        instance = await runner.start(order())
        ending = await asyncio.wait_for(instance.ended, 5)
        assert "SystemExit: 3" in ending.trace


async def test_an_instance_that_ignores_its_stop_ends_with_its_channel(
    runner: ThreadRunner,
) -> None:
    instance = await started(runner, "ignore stop")
    await asyncio.wait_for(instance.stop(0.1), 5)
    assert instance.ended.done()


async def test_an_instance_that_hangs_has_not_ended_until_it_returns(
    runner: ThreadRunner, bare: BareInstance
) -> None:
    instance = await started(runner, "hang")
    stopping = asyncio.create_task(instance.stop(0.1))
    await asyncio.wait([stopping], timeout=0.3)
    assert not stopping.done()
    assert not instance.ended.done()
    bare.gate.set()
    await asyncio.wait_for(stopping, 5)
    assert instance.ended.done()


async def test_a_function_with_an_environment_of_its_own_is_refused(runner: ThreadRunner) -> None:
    with pytest.raises(PackageRefused, match="threads cannot have"):
        await runner.start(order(python=Path("/environments/x/bin/python")))
