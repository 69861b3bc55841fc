"""Carries what kazoo's thread learns to the event loop, and nothing the other way.

kazoo asks its "handler" for everything it needs of threads. The stock handler runs completions on
one worker thread and watches on another, so a watch may be seen before or after an answer that
was read before it. This handler has no workers: every answer, watch and session event goes, in
the order in which the connection read it, into one queue that the event loop empties. One
wake-up of the loop serves everything that arrived meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from magnetar_runtime.clock import Clock

log = logging.getLogger(__name__)


class KazooTimeout(Exception):
    """A read or write of the connection took too long; kazoo connects anew."""


class Posting(Protocol):
    """Something kazoo hands us to be called: a function and its arguments."""

    @property
    def func(self) -> Callable[..., object]:
        """What to call."""
        ...

    @property
    def args(self) -> tuple[object, ...]:
        """With what."""
        ...


class Answer:
    """One value or error that kazoo sets, once, on its own thread.

    Functions linked to it are called by whoever sets it, on that thread; they must only post.
    """

    __slots__ = ("_error", "_is_ready", "_linked", "_lock", "_value")

    def __init__(self) -> None:
        self._value: object = None
        self._error: BaseException | None = None
        self._is_ready = False
        self._linked: list[Callable[[Answer], object]] = []
        self._lock = threading.Lock()

    @property
    def exception(self) -> BaseException | None:
        """The error, if that is the answer."""
        return self._error

    def set(self, value: object = None) -> None:
        """The answer is ``value``."""
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        """The answer is an error."""
        self._settle(None, error)

    def get(self) -> object:
        """The value; raises the error. Never waits: only linked functions ask."""
        assert self._is_ready
        if self._error is not None:
            raise self._error
        return self._value

    def rawlink(self, function: Callable[[Answer], object]) -> None:
        """Call ``function`` with this answer when it is there, now if it is there already."""
        with self._lock:
            if not self._is_ready:
                self._linked.append(function)
                return
        function(self)

    def _settle(self, value: object, error: BaseException | None) -> None:
        with self._lock:
            if self._is_ready:  # kazoo sets an error twice when its socket pair is gone
                return
            self._value, self._error, self._is_ready = value, error, True
            linked, self._linked = self._linked, []
        for function in linked:
            function(self)


class LoopHandler:
    """kazoo's handler for one client, bound to the running event loop."""

    name = "magnetar_loop_handler"
    timeout_exception = KazooTimeout
    sleep_func = staticmethod(time.sleep)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._posted: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._is_wake_up_due = False
        self._is_detached = False
        self._waker: socket.socket | None = None
        self.running = False
        # When the server was last heard, in the clock's monotonic seconds.
        self.heard_at_s = clock.monotonic()

    # --- from any thread to the loop ---------------------------------------------------------

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call ``function(*args)``, after everything posted before."""
        self._posted.append((function, args))
        if self._is_wake_up_due:
            return
        self._is_wake_up_due = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._is_detached = True

    def detach(self) -> None:
        """Deliver nothing from now on: the client behind this handler was given up."""
        self._is_detached = True
        self._posted.clear()

    def _deliver(self) -> None:
        # First, so that what is posted while we deliver is seen below or wakes us again.
        self._is_wake_up_due = False
        posted = self._posted
        while posted and not self._is_detached:
            function, args = posted.popleft()
            function(*args)

    # --- what kazoo asks of a handler --------------------------------------------------------

    def start(self) -> None:
        """kazoo begins: no thread of ours is needed."""
        self.running = True

    def stop(self) -> None:
        """kazoo ends."""
        self.running = False

    def async_result(self) -> Answer:
        """A place for one answer."""
        return Answer()

    def dispatch_callback(self, callback: Posting) -> None:
        """kazoo saw a watch fire."""
        self.post(callback.func, *callback.args)

    def event_object(self) -> threading.Event:
        """kazoo's connection thread waits on these."""
        return threading.Event()

    def lock_object(self) -> threading.Lock:
        """A lock for kazoo's own state."""
        return threading.Lock()

    def rlock_object(self) -> threading.RLock:
        """A lock for kazoo's own state that its holder may take again."""
        return threading.RLock()

    def spawn(self, work: Callable[..., object], *args: object) -> threading.Thread:
        """kazoo's connection thread; a daemon, so that a stuck connect never holds up our exit."""
        thread = threading.Thread(target=work, args=args, name="kazoo", daemon=True)
        thread.start()
        return thread

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The read end and the write end over which kazoo wakes its connection thread."""
        read_end, write_end = socket.socketpair()
        self._waker = read_end
        return read_end, write_end

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, **_tls: object
    ) -> socket.socket:
        """A TCP connection to ``address`` within ``timeout`` seconds; raises ``OSError``."""
        connection = socket.create_connection(address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def select(
        self,
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        _exceptional: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """What is ready within ``timeout`` seconds, as ``select.select`` says it.

        ``poll`` is one system call where kazoo's own (an epoll set for each call) makes four, and
        takes descriptors above 1023. Notes when the server was heard.
        """
        poller = select.poll()
        for reader in readers:
            poller.register(reader, select.POLLIN)
        for writer in writers:
            poller.register(writer, select.POLLOUT)
        ready = {number for number, _ in poller.poll(None if timeout is None else timeout * 1000)}
        readable = [reader for reader in readers if reader.fileno() in ready]
        if any(reader is not self._waker for reader in readable):
            self.heard_at_s = self._clock.monotonic()
        return readable, [writer for writer in writers if writer.fileno() in ready], []


class TransactionBuilder(Protocol):
    """What we use of ``kazoo.client.TransactionRequest``."""

    def create(self, path: str, value: bytes, *, ephemeral: bool) -> None:
        """Add a creation."""

    def set_data(self, path: str, value: bytes, version: int) -> None:
        """Add a replacement of the value."""

    def delete(self, path: str, version: int) -> None:
        """Add a deletion."""

    def check(self, path: str, version: int) -> None:
        """Add a check of the version."""

    def commit_async(self) -> Answer:
        """Send it; the answer is a list with a result or an error for each operation."""
        ...


class Client(Protocol):
    """What we use of ``kazoo.client.KazooClient``. Its answers are ours: ``async_result`` above."""

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """Session id and password, or None while there is no connection."""
        ...

    @property
    def client_state(self) -> str:
        """One of ``kazoo.protocol.states.KeeperState``."""
        ...

    def add_listener(self, listener: Callable[[str], object]) -> None:
        """Call ``listener`` with a ``KazooState`` at every change, on kazoo's thread."""

    def start_async(self) -> object:
        """Begin to connect."""
        ...

    def stop(self) -> None:
        """End the session; waits for kazoo's thread."""

    def close(self) -> None:
        """Give the socket pair back, after ``stop``."""

    def create_async(self, path: str, value: bytes, *, ephemeral: bool, sequence: bool) -> Answer:
        """The answer is the path created."""
        ...

    def get_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is ``(value, stat)``."""
        ...

    def exists_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is the stat, or None."""
        ...

    def get_children_async(self, path: str, *, watch: Callable[[object], object] | None) -> Answer:
        """The answer is a list of names."""
        ...

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        """The answer is the stat."""
        ...

    def delete_async(self, path: str, version: int) -> Answer:
        """The answer is True."""
        ...

    def transaction(self) -> TransactionBuilder:
        """An empty transaction."""
        ...
