"""A network of named hosts: which of them reach each other, how fast, and what breaks.

``host(name)`` gives the ``geminga_runtime.network.Network`` of one host. The faults of links are
calls here (``cut``, ``heal``, ``reset``, ``darken``); ``fault_injector`` decides which of them come
and when. A host whose power fails enters itself into ``dark_hosts``.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from geminga_runtime.network import Listener, ProtocolT
from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.event_loop.incarnation import CURRENT, Incarnation, is_dead_here
from geminga_simulation.event_loop.loop import SimulatedLoop
from geminga_simulation.tcp.pipe import Pipe
from geminga_simulation.tcp.stream import Endpoint

LOOPBACK_NAMES = frozenset({"", "0.0.0.0", "127.0.0.1", "::", "::1", "localhost"})  # noqa: S104
# Ports of listeners that asked for any, and of connecting ends: disjoint, as on Linux.
LISTEN_PORT_FIRST = 20_000
CONNECT_PORT_FIRST = 32_768
# TCP repeats its first packet after a second, then after twice as long, and so on.
SYN_RETRY_S_FIRST = 1.0
# After a partition heals, streams go on when TCP tries again: its pause has doubled some times.
RESUME_S_MAX = 2.0


class SimulatedNetwork:
    """All links and streams of one simulation."""

    def __init__(self, loop: SimulatedLoop, conditions: NetworkConditions | None = None) -> None:
        self.loop = loop
        self.random = loop.stream("network")
        # How well links work. The fault injector sets others while the network is in use.
        self.conditions = conditions or NetworkConditions()
        # How far a sender may be ahead of its receiver, where conditions do not say less.
        self.window_bytes_max = self.conditions.window_bytes
        # What machines do by themselves (answer, retransmit) happens in no host's process. It never
        # dies: packets to a dead process still arrive at its machine.
        self.kernel = loop.incarnate("kernel").context
        # A canary: streams silently lose a chunk now and then.
        self.is_leaky = False
        self.hosts: dict[str, HostNetwork] = {}
        # Machines without power: they answer nothing, not even with resets. A host that crashes
        # silently enters itself, and ``power_on`` takes it out.
        self.dark_hosts: set[str] = set()
        # Pairs of which the first reaches the second no longer.
        self.cuts: set[tuple[str, str]] = set()
        # Client ends of streams with at least one end open, by the numbers of their streams, in the
        # order of connecting. An end removes its stream when both are gone. A dictionary keeps the
        # order of connecting, in which faults draw from the streams.
        self.client_ends: dict[int, Endpoint] = {}
        self._stream_serial = 0

    def host(self, name: str) -> HostNetwork:
        """The view of the host ``name``, which exists from now on."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = HostNetwork(self, name)
        return found

    @property
    def window_bytes(self) -> int:
        """How many bytes may be under way unread on one stream, each way."""
        return min(self.conditions.window_bytes, self.window_bytes_max)

    # --- faults -----------------------------------------------------------------------------

    def cut(self, source: str, target: str, *, is_one_way: bool = False) -> None:
        """Let nothing through from ``source`` to ``target`` (nor back), until healed."""
        # Streams are not touched: what is under way arrives at a link that lets nothing through,
        # and waits.
        self.cuts.add((source, target))
        if not is_one_way:
            self.cuts.add((target, source))

    def heal(self, source: str, target: str) -> None:
        """Let everything through between two hosts; streams that have not broken go on."""
        self.cuts.discard((source, target))
        self.cuts.discard((target, source))
        self._resume_streams()

    def power_on(self, host: str) -> None:
        """The machine is back; it knows no stream of before and answers bytes by a reset."""
        self.dark_hosts.discard(host)
        # What peers have retransmitted until now gets its answer: a reset.
        self._resume_streams()

    def streams(self, host: str | None = None) -> list[Endpoint]:
        """The connecting ends of the open streams (of ``host``), oldest first."""
        return [
            client
            for client in self.client_ends.values()
            if host is None or host in (client.host, client.peer.host)
        ]

    def reset(self, stream: Endpoint) -> None:
        """Break a stream at both ends, each in its own time; what is under way may be lost."""
        for end in (stream, stream.peer):
            end.out_pipe.truncate()
            self._break_later(end)

    def darken(self, stream: Endpoint) -> None:
        """Make a stream half-open: neither end is notified, and nothing gets through any more."""
        # Each end breaks when it has sent something and waited for ``give_up_s``; one that only
        # listens never learns of it.
        stream.is_dark = stream.peer.is_dark = True

    def kill(self, incarnation: Incarnation, *, is_silent: bool = False) -> None:
        """A process died: its ports close, its streams end.

        Its machine tells the peers, unless ``is_silent`` (the machine died with it): an end of
        file, or a reset where bytes from the peer were left unread, as Linux does.
        """
        for host in self.hosts.values():
            for port, listener in list(host.listeners.items()):
                if listener.context.get(CURRENT) is incarnation:
                    del host.listeners[port]
        # A copy: streams leave the list when both of their ends are gone.
        for client in self.streams():
            for end in (client, client.peer):
                if end.incarnation is not incarnation or end.is_gone:
                    continue
                # Before anything is sent for it: from here on its machine's kernel has the socket.
                end.die()
                if is_silent:
                    end.out_pipe.truncate()
                elif end.in_pipe.segments:
                    # Unread bytes: a reset, which may overtake what this process has sent.
                    end.out_pipe.truncate()
                    self.reset_from(end)
                else:
                    end.out_pipe.send(None)

    # --- for streams ------------------------------------------------------------------------

    def delay_s(self) -> float:
        """How long a chunk takes this time."""
        conditions = self.conditions
        chance = self.random.random
        low_s = conditions.delay_s_min
        delay_s = low_s + (conditions.delay_s_max - low_s) * chance()
        if conditions.late_probability and chance() < conditions.late_probability:
            delay_s += conditions.late_s_max * chance()
        return delay_s

    def passes(self, sender: Endpoint) -> bool:
        """Whether what ``sender`` sends gets to its peer now."""
        if sender.is_dark:
            return False
        # Most of the time nothing is cut: that is found out without looking at the pair.
        return not (self.cuts or self.dark_hosts) or self.reaches(sender.host, sender.peer.host)

    def reaches(self, source: str, target: str) -> bool:
        """Whether packets from one machine get to the other now."""
        return target not in self.dark_hosts and (source, target) not in self.cuts

    def reset_from(self, end: Endpoint) -> None:
        """Send a reset from ``end`` to its peer; the reset is lost where nothing gets through."""
        if self.passes(end):
            self._break_later(end.peer)

    def _break_later(self, end: Endpoint) -> None:
        error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        self.loop.after(self.delay_s(), end.lose, error, context=end.context)

    def _resume_streams(self) -> None:
        for client in self.client_ends.values():
            for end in (client, client.peer):
                if self.passes(end):
                    end.out_pipe.resume(RESUME_S_MAX * self.random.random())

    # --- connecting -------------------------------------------------------------------------

    def open_stream(self, attempt: _Attempt, listener: SimulatedListener) -> Endpoint:
        """Make both ends of a new stream and return the one that connects."""
        # Each connection has a port of its own, as if ports never ran out.
        source = self.hosts[attempt.source]
        source.connect_port += 1
        client = Endpoint(self, attempt.context, attempt.source, source.connect_port)
        server = Endpoint(self, listener.context, attempt.target, listener.port)
        # Each pipe is the one's way out and the other's way in.
        client.peer, server.peer = server, client
        client.out_pipe = server.in_pipe = Pipe(self, client, server)
        server.out_pipe = client.in_pipe = Pipe(self, server, client)
        self._stream_serial += 1
        client.stream = server.stream = self._stream_serial
        self.client_ends[self._stream_serial] = client
        return client

    def resolve(self, source: str, name: str) -> str:
        """The host meant by ``name`` on ``source``; raises ``OSError`` where there is none."""
        if name in LOOPBACK_NAMES or name == source:
            return source
        if name not in self.hosts:
            raise OSError(errno.ENOENT, f"no host is named {name}")
        return name


@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt to connect: the packets that go to and fro before there is a stream."""

    network: SimulatedNetwork
    # That of the process that connects.
    context: Context
    # Names of hosts.
    source: str
    target: str
    port: int
    deadline_s: float
    # The connecting end of the stream, or an ``OSError``.
    future: asyncio.Future[Endpoint]

    def arrive(self, retry_s: float) -> None:
        """A packet arrives at the target, unless it is lost; it was the last for ``retry_s``."""
        network = self.network
        loop, kernel = network.loop, network.kernel
        if self.future.done():
            return
        address = f"{self.target}:{self.port}"
        # Both ways: the first packet must get there, and its answer back.
        is_heard = network.reaches(self.source, self.target)
        if not is_heard or not network.reaches(self.target, self.source):
            # The packet, or its answer, is lost: TCP sends another one until the deadline.
            if loop.now_s + retry_s < self.deadline_s:
                loop.after(retry_s, self.arrive, retry_s * 2, context=kernel)
            else:
                due_s = max(loop.now_s, self.deadline_s)
                lost = TimeoutError(errno.ETIMEDOUT, f"{address} does not answer")
                loop.at(due_s, self._finish, None, lost, context=kernel)
            return
        client: Endpoint | None = None
        error: OSError | None = None
        # Now, not when the packet was sent. A refusal ends the attempt: only what is lost is sent
        # again.
        listener = network.hosts[self.target].listeners.get(self.port)
        if listener is None:
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on {address}")
        else:
            # The accepting side has its connection a way earlier than the connecting side. From
            # here on the stream exists on both machines, though the connecting process learns of it
            # a way later.
            client = network.open_stream(self, listener)
            loop.call_soon(listener.accept, client.peer, context=listener.context)
        loop.after(network.delay_s(), self._finish, client, error, context=kernel)

    def _finish(self, client: Endpoint | None, error: OSError | None) -> None:
        if self.future.done():  # given up meanwhile
            if client is not None:
                # The peer is told by a reset: its side of the stream was opened.
                client.abort()
        elif error is not None:
            self.future.set_exception(error)
        elif client is not None:
            self.future.set_result(client)


@dataclass(slots=True, eq=False)
class HostNetwork:
    """One host's view: implements ``geminga_runtime.network.Network``."""

    network: SimulatedNetwork
    name: str
    # By port.
    listeners: dict[int, SimulatedListener] = field(default_factory=dict[int, "SimulatedListener"])
    # The port of the last end that connected from here.
    connect_port: int = CONNECT_PORT_FIRST
    # The next port for a listener that asks for any.
    listen_port: int = LISTEN_PORT_FIRST

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """As ``Network.connect``; refused, timed out and unknown names are ``OSError``."""
        network = self.network
        if is_dead_here():
            await network.loop.create_future()  # a dead process never gets an answer
        target = network.resolve(self.name, host)
        loop = network.loop
        deadline_s = loop.now_s + network.conditions.connect_timeout_s
        connected: asyncio.Future[Endpoint] = loop.create_future()
        attempt = _Attempt(
            network,
            copy_context(),
            self.name,
            target,
            port=port,
            deadline_s=deadline_s,
            future=connected,
        )
        # The first packet. Packets are handled by the machines' kernels, in no process.
        delay_s = network.delay_s()
        loop.after(delay_s, attempt.arrive, SYN_RETRY_S_FIRST, context=network.kernel)
        try:
            endpoint = await connected
        except asyncio.CancelledError:
            # Cancelled in the turn in which the stream was opened: without a protocol it would stay
            # open until the run ends.
            if connected.done() and not connected.cancelled() and connected.exception() is None:
                connected.result().abort()
            raise
        # The stream may have been reset between the answer and this task's turn.
        if endpoint.is_gone:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        try:
            protocol = factory()
            endpoint.start(protocol)
        except BaseException:
            endpoint.abort()
            raise
        return endpoint, protocol

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        """As ``Network.listen``; the address within the host makes no difference."""
        self.network.resolve(self.name, host)
        if port == 0:
            while self.listen_port in self.listeners:
                self.listen_port += 1
            port = self.listen_port
            self.listen_port += 1
        listener = SimulatedListener(self, factory, copy_context(), port)
        # The cleanup of a dead process may still listen: it gets a listener that hears nothing.
        if not is_dead_here():
            if port in self.listeners:
                raise OSError(errno.EADDRINUSE, f"port {port} of {self.name} is taken")
            self.listeners[port] = listener
        return listener


@dataclass(slots=True, eq=False)
class SimulatedListener:
    """A port of a host that accepts streams."""

    host: HostNetwork
    factory: Callable[[], asyncio.BaseProtocol]
    # That of the process which listens: protocols are made, and run, in it.
    context: Context
    port: int

    async def close(self) -> None:
        """Accept no more; open streams stay."""
        # The process may have died since, and another listen on the port.
        if self.host.listeners.get(self.port) is self:
            del self.host.listeners[self.port]

    def accept(self, endpoint: Endpoint) -> None:
        """A stream was opened: make its protocol, in the listener's process."""
        # The connecting side may have given up in the meantime.
        if endpoint.is_gone:
            return
        try:
            endpoint.start(self.factory())
        except BaseException:
            endpoint.abort()
            raise
