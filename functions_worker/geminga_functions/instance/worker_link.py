"""Runs an instance for its worker, and answers the worker's messages meanwhile.

The worker is at the other end of a socket, whether the instance has a process of its own (``main``)
or a thread of the worker (``serve``). A separate thread reads the channel and checks the lease:
user code that computes for long can then delay neither.
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
from geminga_functions.instance.code_loader import Loader
from geminga_functions.instance.function_instance import Instance
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
from geminga_functions.instance.settlement import TRACE_CHARACTERS_MAX
from geminga_functions.instance.spec import InstanceSpec
from geminga_functions.instance.status import trace_of
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.local_copy import LOCAL_COPY
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.clock import Clock, SystemClock
from geminga_runtime.control_codec import MessageReader

# The size of one read, not of one message: ``MessageReader`` joins longer ones.
RECEIVED_BYTES_MAX = 64 * 1024
# How long an instance that has failed may take to close its producers and consumers.
CLOSE_TIMEOUT_S = 2.0
# The thread of the channel ends the instance so much before the end of the lease, and kills with it
# what the instance has started. The kernel's timer, which goes off at the end of the lease where
# code holds the interpreter, kills the process alone: it must come second.
LEAVES_EARLIER_S = 0.05


class WorkerChannel:
    """The instance's end of the channel to its worker, read by a thread of its own.

    The thread calls ``leave`` with the reason when the lease or the channel has ended, and ends.
    ``on_lease`` is called with each new end of the lease, in seconds of the monotonic clock; an
    instance in a thread needs none, since it checks its lease before each message.
    """

    def __init__(
        self,
        sock: socket.socket,
        clock: Clock,
        leave: Callable[[str], None],
        on_lease: Callable[[float], object] | None = None,
    ) -> None:
        # Blocking: on another socket ``sendall`` could fail in the middle of a frame, and the
        # worker would take the next one for its rest.
        sock.setblocking(True)  # noqa: FBT003 - the standard library's
        self._socket = sock
        self._leave = leave
        self._on_lease = on_lease
        self._clock = clock
        self._reader = MessageReader(INSTANCE_CHANNEL)
        # Guards the socket's sending side: the thread of the channel and the loop both send.
        self._sending = threading.Lock()
        # Messages that came before the thread was started.
        self._early: list[object] = []
        # When the instance has to leave: LEAVES_EARLIER_S before the end of its lease.
        # ``receive_start`` writes it, later only the thread of the channel; others read it. No
        # function is loaded before ``Start`` has replaced infinity.
        self._lease_until_s = float("inf")
        # Set by ``serve``: the loop of the instance, and a future of it for the time-out of a stop.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Future[Any] | None = None
        # The instance once it runs: until then there is no status to answer with.
        self.instance: Instance | None = None

    def may_run(self) -> bool:
        """Whether the instance still has its lease; any thread may call this."""
        return self._clock.monotonic() < self._lease_until_s

    def _set_lease(self, until_s: float) -> None:
        # First what Python checks, then the kernel's timer: in between, the earlier of the two ends
        # holds.
        self._lease_until_s = until_s - LEAVES_EARLIER_S
        if self._on_lease is not None:
            self._on_lease(until_s)

    def receive_start(self) -> Start:
        """Wait for the first message: what is to run. Blocks.

        Raises ``InstanceFailed`` if the worker has closed the channel.
        """
        while not self._early:
            chunk = self._socket.recv(RECEIVED_BYTES_MAX)
            if not chunk:
                raise InstanceFailed("the worker is gone")
            # Several messages may arrive as one chunk, and one as several.
            self._early += self._reader.feed(chunk)
        start = self._early.pop(0)
        assert isinstance(start, Start), f"a worker begins with Start, and not with {start!r}"
        # The process may have taken so long to start that the lease in ``Start`` has ended, and was
        # extended meanwhile. A timer armed with an end in the past would kill the process at once,
        # so the extensions that have arrived are read first.
        with suppress(OSError):  # nothing has arrived, or the worker is gone: the thread sees that
            self._early += self._reader.feed(
                self._socket.recv(RECEIVED_BYTES_MAX, socket.MSG_DONTWAIT)
            )
        extended = [each.until_s for each in self._early if isinstance(each, Lease)]
        self._set_lease(max([start.lease_until_s, *extended]))
        return start

    def serve(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Future[Any]) -> None:
        """Start the thread. ``stop`` is done in ``loop`` with the time-out of a ``Stop``."""
        self._loop, self._stop = loop, stop
        threading.Thread(target=self._follow, name="worker channel", daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message, if the worker is still there."""
        with self._sending, suppress(OSError):
            self._socket.sendall(INSTANCE_CHANNEL.encode(message))

    def fail(self, error: BaseException) -> None:
        """Report why the instance ends.

        An error that is raised after the end of the lease is taken for its consequence.
        """
        self.send(failure_of(error) if self.may_run() else Expired())

    def _follow(self) -> None:
        """In the thread: take messages until the lease or the channel ends, then leave."""
        # In the order of their arrival; the longest lease among them is in force already.
        for message in self._early:
            self._take(message)
        # Not select(2), which fails for descriptors above 1023: workers with hundreds of instances
        # in threads have them.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # The wait ends with the lease or with a message. What is left is computed anew each time,
        # since the message may have been a new lease.
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
        # Nothing here may block, not even where the worker is paused and reads nothing: in a moment
        # the kernel kills the process, and not what it has started, which ``leave`` kills.
        if self._sending.acquire(blocking=False):
            try:
                # An error of the socket (a reset) counts as its end, as an empty read does.
                with suppress(OSError):
                    self._socket.send(INSTANCE_CHANNEL.encode(Expired()), socket.MSG_DONTWAIT)
            finally:
                self._sending.release()
        self._leave("the lease has ended")

    def _take(self, message: object) -> None:
        match message:
            case Lease(until_s):
                # Older ones come, too: among the early messages, of which the longest is in force.
                if until_s - LEAVES_EARLIER_S > self._lease_until_s:
                    self._set_lease(until_s)
            case StatusRequest(request_id):
                # In this thread: the answer does not wait for a loop that the user's code may
                # occupy.
                status = "" if self.instance is None else self.instance.counters.status().to_json()
                self.send(StatusAnswer(request_id, status))
            # Asked a second time, the instance keeps its first deadline (``_set``).
            case Stop(deadline_s):
                assert self._loop is not None
                assert self._stop is not None
                self._loop.call_soon_threadsafe(_set, self._stop, deadline_s)
            case _:
                pass  # a message of a newer worker


def _set(future: asyncio.Future[Any], outcome: float | Exception) -> None:
    """Set the result or the error of a future, unless it is done."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def loop_runner() -> asyncio.Runner:
    """A runner with uvloop's event loop if it can be imported, and with Python's otherwise.

    The worker's environment has uvloop; that of a function may lack it.
    """
    try:
        import uvloop  # noqa: PLC0415 - see above
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def serve(sock: socket.socket) -> None:
    """Run an instance on this loop, in a thread of the worker, until the worker stops it.

    Returns once no user code runs any more. When the lease ends, or the worker closes the channel,
    the instance begins no further message, and ends when the code has returned.
    """
    loop = asyncio.get_running_loop()
    # It stands for ``stop`` in ``run``: a ``Stop`` sets its result, and the end of the lease or of
    # the channel sets an error in it, which ``run`` raises once it looks at it.
    ended: asyncio.Future[Any] = loop.create_future()

    def leave(reason: str) -> None:
        with suppress(RuntimeError):  # the loop has ended: so has the instance
            loop.call_soon_threadsafe(_set, ended, InstanceFailed(reason))

    channel = WorkerChannel(sock, SystemClock(), leave)
    # This blocks the loop, which has nothing else to do yet: a thread for it would never end where
    # no message comes.
    start = channel.receive_start()
    try:
        await run(start, channel, is_alone=False, stop=ended)
    except Exception as error:  # noqa: BLE001 - reported, whatever it is
        channel.fail(error)
    else:
        channel.send(Stopped())


async def run(
    start: Start,
    channel: WorkerChannel,
    *,
    is_alone: bool,
    stop: asyncio.Future[Any] | None = None,
) -> None:
    """Run the instance until its worker stops it, with a time-out for the messages in progress.

    ``is_alone`` says that the instance has a process of its own. ``stop`` gets the time-out; the
    caller may end the instance by an error in it. Raises what the instance fails with.
    """
    loop = asyncio.get_running_loop()
    if stop is None:
        stop = loop.create_future()
    # From here on the lease is checked, also while the instance loads the function, which may take
    # long. The order of events:
    #
    #   serve -> client -> state -> instance -> Started -> ... -> stop or failure
    #
    # What opens last closes first: the instance finishes before its state closes, whose lanes the
    # client's connections write.
    channel.serve(loop, stop)
    spec = spec_of(start)
    loader = Loader(spec.import_paths, is_alone=is_alone)
    async with (
        # Outermost, so that its deadline, once set below, covers the closing of all the others.
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
        # Before ``Started``, after which the worker may ask for the status at once.
        channel.instance = instance
        channel.send(Started())
        # A state that cannot be relied on ends the instance, even one that does nothing now.
        failures = (instance.failure, state.failure)
        await asyncio.wait([stop, *failures], return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                if is_alone:
                    # Closing waits for user code, and code that does not return would keep the
                    # process from ending.
                    closing.reschedule(loop.time() + CLOSE_TIMEOUT_S)
                await failure
        # The worker kills a process a moment later; a thread it can only leave alone.
        async with asyncio.timeout(stop.result()):
            await instance.stop()


def spec_of(start: Start) -> InstanceSpec:
    """The description of the instance that a ``Start`` message carries."""
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
    """The message that reports an error which ended the instance."""
    match error:
        # The traceback of what the user's module raised says more to its author than our own
        # frames.
        case FunctionNotLoaded():
            cause = error.__cause__
            trace = str(error) if cause is None else trace_of(cause, TRACE_CHARACTERS_MAX)
            return Failed(trace, is_user_error=True)
        case InstanceFailed():
            return Failed(str(error), is_user_error=error.is_user_error)
        # Not the function's as far as is known: a broker's, the client library's, or a mistake of
        # ours.
        case _:
            return Failed(trace_of(error, TRACE_CHARACTERS_MAX), is_user_error=False)
