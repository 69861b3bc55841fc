"""Serves one worker: runs the instance that it asks for, and speaks with it meanwhile.

The worker is at the other end of a socket: of a process's own (``main``), or of a thread's in the
worker itself (``serve``). A thread reads the channel and looks after the lease, so that no code of
the user's, however long it computes, keeps either waiting.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import geminga
from geminga_functions.errors import FunctionNotLoaded, InstanceFailed
from geminga_functions.instance.loading import Loader
from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Expired,
    Failed,
    Lease,
    Start,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.instance.running import Instance
from geminga_functions.instance.settling import TRACE_CHARACTERS_MAX
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import trace_of
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.local_copy import LOCAL_COPY
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.control_codec import MessageReader

RECEIVED_BYTES_MAX = 64 * 1024
# What an instance that has failed may take to close its producers and consumers.
CLOSE_TIMEOUT_S = 2.0
# The thread ends an instance in time, with all that it has started; the kernel, which ends an
# instance whose code holds the interpreter, knows only the process: it comes second.
LEAVES_EARLIER_S = 0.05


def ignore_lease(until_s: float) -> None:
    """Of an instance in a thread the lease is looked at before each message."""


class WorkerChannel:
    """The channel to the worker, and the lease, in a thread of its own.

    ``leave`` is called there when the lease or the channel has ended; then the thread ends.
    ``on_lease`` is told until when of the monotonic clock the instance may run.
    """

    def __init__(
        self,
        sock: socket.socket,
        clock: Clock,
        leave: Callable[[str], None],
        on_lease: Callable[[float], object] = ignore_lease,
    ) -> None:
        sock.setblocking(True)  # noqa: FBT003 - the standard library's
        self._socket = sock
        self._leave = leave
        self._on_lease = on_lease
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

    def _set_lease(self, until_s: float) -> None:
        self._lease_until_s = until_s - LEAVES_EARLIER_S
        self._on_lease(until_s)

    def receive_start(self) -> Start:
        """What is to run: the first message. Raises ``InstanceFailed`` where the worker is gone."""
        while not self._early:
            chunk = self._socket.recv(RECEIVED_BYTES_MAX)
            if not chunk:
                raise InstanceFailed("the worker is gone")
            self._early += self._reader.feed(chunk)
        start = self._early.pop(0)
        assert isinstance(start, Start), f"a worker begins with Start, and not with {start!r}"
        # A process may take long to begin, and its lease was extended meanwhile: only the newest
        # counts, since the kernel would end the instance at once by one that is over.
        self._early += self._reader.feed(self._waiting_bytes())
        extended = [each.until_s for each in self._early if isinstance(each, Lease)]
        self._set_lease(max([start.lease_until_s, *extended]))
        return start

    def _waiting_bytes(self) -> bytes:
        try:
            return self._socket.recv(RECEIVED_BYTES_MAX, socket.MSG_DONTWAIT)
        except OSError:  # nothing is waiting, or the worker is gone: the thread will see that
            return b""

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

    def fail(self, error: BaseException) -> None:
        """Tell the worker why the instance ends. Whatever is raised after the end of the lease, the
        lease is the reason."""
        self.send(failure_of(error) if self.may_run() else Expired())

    def _expire(self) -> None:
        # Nothing here may wait, for a worker that stands still and reads nothing, say: the kernel
        # ends the process in a moment, and knows nothing of what it has started.
        if self._sending.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._socket.send(INSTANCE_CHANNEL.encode(Expired()), socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def _follow(self) -> None:
        for message in self._early:
            self._take(message)
        # Not select(2), which knows no descriptors above 1023: workers with hundreds of instances
        # in threads have them.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while (left_s := self._lease_until_s - self._clock.monotonic()) > 0:
            if not poll.poll(left_s * 1000):
                continue
            with suppress(OSError):
                if chunk := self._socket.recv(RECEIVED_BYTES_MAX):
                    for message in self._reader.feed(chunk):
                        self._take(message)
                    continue
            self._leave("the worker is gone")
            return
        self._expire()
        self._leave("the lease has ended")

    def _take(self, message: object) -> None:
        match message:
            case Lease(until_s):
                self._set_lease(max(self._lease_until_s, until_s))
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


def loop_runner() -> asyncio.Runner:
    """Runs an instance on uvloop's event loop, where there is one; on Python's own otherwise.

    The worker's environment has uvloop. That of a function need not have one that can be imported.
    """
    try:
        import uvloop  # noqa: PLC0415 - see above
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def serve(sock: socket.socket) -> None:
    """Run an instance in a thread that has this loop, until the worker stops it.

    Returns once no code of the user's runs any more. Without lease or worker the instance takes no
    further message, and ends when the code has returned.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def leave(reason: str) -> None:
        with suppress(RuntimeError):  # the loop has ended: so has the instance
            loop.call_soon_threadsafe(_settle, ended, InstanceFailed(reason))

    channel = WorkerChannel(sock, SystemClock(), leave)
    # It blocks this loop, which has nothing else to do yet: a thread for it would stay for ever.
    start = channel.receive_start()
    try:
        await run(start, channel, ended, is_alone=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker is told
        channel.fail(error)
    else:
        channel.send(Stopped())


async def run(
    start: Start, channel: WorkerChannel, stop: asyncio.Future[Any], *, is_alone: bool
) -> None:
    """Run the instance until ``stop`` is done: with a time-out, when the worker has said so.

    Raises what the instance fails with.
    """
    loop = asyncio.get_running_loop()
    channel.serve(loop, stop)
    spec = spec_of(start)
    loader = Loader(spec.import_paths, is_alone=is_alone)
    async with (
        asyncio.timeout(None) as closing,
        geminga.connect(spec.service_url, tls=spec.client_tls) as client,
        ChangelogState(
            client,
            spec.functions_namespace,
            spec.name.function,
            str(spec.number),
            is_alone=spec.details.parallelism == 1,
            directory=spec.state_directory / LOCAL_COPY,
        ) as state,
        Instance(spec, client, SystemClock(), loader, state, may_run=channel.may_run) as instance,
    ):
        channel.serve_status_of(instance)
        channel.send(Started())
        failures = (instance.failure, state.failure)
        await asyncio.wait([stop, *failures], return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                if is_alone:
                    # Code that does not return would keep the process from ending.
                    closing.reschedule(loop.time() + CLOSE_TIMEOUT_S)
                await failure
        async with asyncio.timeout(stop.result()):
            await instance.stop()


def _settle(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


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
        start.functions_namespace,
        start.async_messages_max,
        start.secrets_provider,
        start.secrets_config,
        geminga.Tls(
            start.tls_trust_file or None,
            start.tls_certificate_file or None,
            start.tls_key_file or None,
            checks_hostname=start.tls_checks_hostname,
        ),
    )


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
