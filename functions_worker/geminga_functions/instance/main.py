"""An instance in a process of its own: ``python -m geminga_functions.instance DESCRIPTOR PARENT``.

``DESCRIPTOR`` is its end of a socket pair, over which its worker tells it what to run, and how
long it may; ``PARENT`` is the worker's process id. A thread of its own reads the channel and looks
after the lease, so that no code of the user's, however long it computes, keeps either waiting.
Without a lease, or without its worker, the process ends at once, and all that it started with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import geminga
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.loading import prepare_path
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
from geminga_functions.instance.running import TRACE_CHARACTERS_MAX, Instance
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import trace_of
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.control_codec import MessageReader

PR_SET_PDEATHSIG = 1
RECEIVED_BYTES_MAX = 64 * 1024


def spec_of(start: Start) -> InstanceSpec:
    """What the worker tells, as an instance has it."""
    return InstanceSpec(
        FunctionDetails.FromString(start.details),
        start.number,
        start.version,
        start.worker_id,
        start.cluster,
        start.service_url,
        start.web_url,
        Path(start.package) if start.package else None,
        tuple(Path(path) for path in start.import_paths.split(os.pathsep) if path),
        Path(start.state_directory),
    )


class WorkerChannel:
    """The channel to the worker, and the lease, in a thread of its own.

    Nothing but the end of the process stops the thread.
    """

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._socket = sock
        self._clock = clock
        self._reader = MessageReader(INSTANCE_CHANNEL)
        self._sending = threading.Lock()
        self._early: list[object] = []
        self._lease_until_s = float("inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._instance: Instance | None = None
        self.stop_within_s: asyncio.Future[Any] | None = None

    def may_run(self) -> bool:
        """Whether the lease goes on."""
        return self._clock.monotonic() < self._lease_until_s

    def receive_start(self) -> Start:
        """What is to run: the first message. Ends the process where the worker is gone."""
        while not self._early:
            self._early += self._reader.feed(self._receive())
        start = self._early.pop(0)
        assert isinstance(start, Start), f"a worker begins with Start, and not with {start!r}"
        self._lease_until_s = start.lease_until_s
        return start

    def serve(self, loop: asyncio.AbstractEventLoop, stop_within_s: asyncio.Future[Any]) -> None:
        """Follow the worker from now on."""
        self._loop, self.stop_within_s = loop, stop_within_s
        threading.Thread(target=self._follow, name="worker channel", daemon=True).start()

    def serve_status_of(self, instance: Instance) -> None:
        """Answer questions about ``instance``."""
        self._instance = instance

    def send(self, message: object) -> None:
        """Tell the worker, if it is still there."""
        with self._sending, suppress(OSError):
            self._socket.sendall(INSTANCE_CHANNEL.encode(message))

    def _follow(self) -> None:
        for message in self._early:
            self._take(message)
        while True:
            left_s = self._lease_until_s - self._clock.monotonic()
            if left_s <= 0:
                end_group("the lease has ended")
            if not select.select([self._socket], [], [], left_s)[0]:
                continue
            for message in self._reader.feed(self._receive()):
                self._take(message)

    def _take(self, message: object) -> None:
        match message:
            case Lease(until_s):
                self._lease_until_s = max(self._lease_until_s, until_s)
            case StatusRequest(request_id):
                status = "" if self._instance is None else self._instance.status().to_json()
                self.send(StatusAnswer(request_id, status))
            case Stop(deadline_s):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._stop, deadline_s)
            case _:
                pass  # of a newer worker

    def _stop(self, deadline_s: float) -> None:
        assert self.stop_within_s is not None
        if not self.stop_within_s.done():
            self.stop_within_s.set_result(deadline_s)

    def _receive(self) -> bytes:
        chunk = self._socket.recv(RECEIVED_BYTES_MAX)
        if not chunk:
            end_group("the worker is gone")
        return chunk


def end_group(reason: str) -> None:
    """End this process and all that it started, at once."""
    with suppress(OSError):
        os.write(2, f"instance ends: {reason}\n".encode())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def end_with(parent: int) -> None:
    """Have the kernel end this process when its worker ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        end_group("the worker is gone")


async def run(start: Start, channel: WorkerChannel) -> None:
    """Run the instance until the worker stops it. Raises what it fails with."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[Any] = loop.create_future()
    channel.serve(loop, stop)
    spec = spec_of(start)
    prepare_path(spec.import_paths)
    async with (
        geminga.connect(spec.service_url) as client,
        Instance(spec, client, SystemClock(), may_run=channel.may_run) as instance,
    ):
        channel.serve_status_of(instance)
        channel.send(Started())
        await asyncio.wait([stop, instance.failure], return_when=asyncio.FIRST_COMPLETED)
        if instance.failure.done():
            await instance.failure
        async with asyncio.timeout(stop.result()):
            await instance.stop()


def main() -> None:
    """Run one instance; exits with 1 where it failed."""
    end_with(int(sys.argv[2]))
    channel = WorkerChannel(socket.socket(fileno=int(sys.argv[1])), SystemClock())
    try:
        asyncio.run(run(channel.receive_start(), channel))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker is told
        channel.send(failure_of(error))
        code = 1
    else:
        channel.send(Stopped())
        code = 0
    sys.stdout.flush()
    # Not sys.exit: threads of the user's would be waited for.
    os._exit(code)


def failure_of(error: BaseException) -> Failed:
    """What the worker is told of an error that ended the instance."""
    match error:
        case FunctionNotLoaded():
            cause = error.__cause__
            trace = str(error) if cause is None else trace_of(cause, TRACE_CHARACTERS_MAX)
            return Failed(trace, is_user_error=True)
        case InstanceFailed():
            return Failed(str(error), is_user_error=error.is_user_error)
        case _:
            return Failed(trace_of(error, TRACE_CHARACTERS_MAX), is_user_error=False)
