"""One client's connection to the proxy, from its first byte until it is joined to a broker.

    STARTED ──CONNECT─────────────────────▶ ASKING    asks for topics, for as long as it stays
       │    └─CONNECT proxy_to_broker_url─▶ JOINING ──the broker answers──▶ spliced to its broker

The proxy answers CONNECT itself where a client asks for topics. Where it names a broker, its
CONNECT goes there, and what the broker answers comes back: versions, limits, challenges and
refusals are between those two. Nothing else is sent to an address that has not answered as a broker
does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, cast

from geminga_protocol.errors import OversizedFrame, WireError
from geminga_protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES, FrameReader
from geminga_protocol.proxy_header import read_proxy_header
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_connected, encode_error, encode_refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.commands import (
    NO_REQUEST_ID,
    PART_NAMES,
    PING,
    PONG,
    encode_command,
    parse_command,
)
from geminga_protocol.pulsar.features import PROXY_FEATURES, SERVER_VERSION, agreed_version
from geminga_proxy.addresses.targets import Target, TargetRules
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.errors import TargetRefused
from geminga_proxy.lookups import QUESTIONS, Lookups
from geminga_proxy.splice import Splice, Splices
from geminga_runtime.network import Network
from geminga_server.connection_limits import ConnectionLimits, Limit

log = logging.getLogger(__name__)

# Questions are names and patterns; the longest that clients and brokers say before they are joined
# are credentials (a token with many claims, a chain of certificates: tens of KiB).
FRAME_BYTES_MAX = 128 * 1024
# Questions of one client that wait for answers; then it is not read. A client with thousands of
# topics asks for as many at once.
QUESTIONS_MAX = 1_000
# What brokers say first. An ERROR ends the connection, which the splice carries too.
FIRST_ANSWERS = frozenset({BaseCommand.CONNECTED, BaseCommand.AUTH_CHALLENGE, BaseCommand.ERROR})


class State(Enum):
    """How far a connection is."""

    STARTED = auto()
    ASKING = auto()
    JOINING = auto()
    ENDED = auto()
    """Joined, so that this is no longer its protocol; refused or lost."""


@dataclass(slots=True)
class ConnectionCounts:
    """Connections of clients since the start, and how many of these were refused."""

    made: int = 0
    rejected: int = 0


@dataclass(slots=True)
class ConnectionContext:
    """What all connections share."""

    config: ProxyConfig
    network: Network
    brokers: Brokers
    lookups: Lookups
    splices: Splices
    limits: ConnectionLimits
    rules: TargetRules
    spawn: Callable[[Coroutine[Any, Any, object], str], asyncio.Task[object]]
    counts: ConnectionCounts = field(default_factory=ConnectionCounts)
    # Those that are not joined; in the order of coming.
    open: dict[ClientConnection, None] = field(default_factory=dict)


class ClientConnection(asyncio.Protocol):
    """The proxy's end of a client's connection, until a splice takes it over."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._state = State.STARTED
        self._early = bytearray()  # before CONNECT is whole
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport
        self._is_header_due = context.config.ha_proxy_protocol_enabled
        self._host = ""
        self._is_admitted = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_heard = True
        self._is_slow = False
        # What works for this client, and ends with it.
        self._tasks: set[asyncio.Task[object]] = set()

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; it has a keep-alive interval to say CONNECT."""
        context = self._context
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        context.counts.made += 1
        if self._admit(str(peer[0]) if peer else "unknown"):
            context.open[self] = None
            self._set_timer(self._close, "it did not say CONNECT in time")

    def _admit(self, host: str) -> bool:
        """Count the connection as one from ``host``: of the peer at first, then of whom a balancer
        speaks for. One too many is refused, in upstream's words."""
        limits = self._context.limits
        if self._is_admitted:
            limits.leave(self._host)
        self._host = host
        exceeded = limits.admit(host)
        self._is_admitted = exceeded is None
        if exceeded is not None:
            self._context.counts.rejected += 1
            self._leave()
            reason = "Reached the maximum number of connections"
            if exceeded is Limit.ADDRESS:
                reason += f" on address {host}"
            self._transport.write(encode_error(NO_REQUEST_ID, api.NotAllowedError, reason))
            self._transport.close()
        return self._is_admitted

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        del exc
        self._leave()
        if self._is_admitted:
            self._context.limits.leave(self._host)

    def pause_writing(self) -> None:
        """The client does not read its answers: it is asked for no more questions."""
        self._is_slow = True
        self._review_reading()

    def resume_writing(self) -> None:
        """It caught up."""
        self._is_slow = False
        self._review_reading()

    def data_received(self, data: bytes) -> None:
        """Handle what is whole now."""
        self._is_heard = True
        try:
            if self._state is State.STARTED:
                self._early += data
                self._begin()
            elif self._state is State.ASKING:
                buffer, bounds = self._frames.feed(data)
                for start, end in bounds:
                    self._asked(parse_command(buffer, start, end)[0])
        except WireError as error:
            self._close(str(error))

    # CONNECT

    def _begin(self) -> None:
        """Look for CONNECT. What comes behind it is not looked at before it is known whose it is:
        a broker takes larger frames."""
        early = self._early
        if self._is_header_due:
            header = read_proxy_header(bytes(early))
            if header is None:
                return
            self._is_header_due = False
            del early[: header.size_bytes]
            if header.source is not None and not self._admit(header.source):
                return
        if len(early) < FRAME_SIZE_BYTES:
            return
        (frame_bytes,) = FRAME_SIZE.unpack_from(early)
        if frame_bytes > FRAME_BYTES_MAX:
            raise OversizedFrame(frame_bytes, FRAME_BYTES_MAX)
        end = FRAME_SIZE_BYTES + frame_bytes
        if len(early) >= end:
            connect, rest = bytes(early[:end]), bytes(early[end:])
            early.clear()
            command, _ = parse_command(connect, FRAME_SIZE_BYTES, end)
            self._connect(command, rest)

    def _connect(self, command: BaseCommand, rest: bytes) -> None:
        if command.type != BaseCommand.CONNECT:
            raise WireError("the first command must be CONNECT")
        connect = command.connect
        if connect.proxy_to_broker_url:
            self._state = State.JOINING
            self._transport.pause_reading()
            self._run(self._join(connect, rest), "join a broker")
            return
        self._state = State.ASKING
        version = agreed_version(connect.protocol_version)
        self._transport.write(encode_connected(version, None, PROXY_FEATURES))
        self._set_timer(self._check_alive)
        if rest:
            self.data_received(rest)

    async def _join(self, connect: api.CommandConnect, rest: bytes) -> None:
        """Connect to the broker that the client named, and splice the two."""
        context, named = self._context, connect.proxy_to_broker_url
        connect.ClearField("proxy_to_broker_url")
        connect.proxy_version = SERVER_VERSION
        handshake = BrokerHandshake(
            encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
        )
        try:
            target = Target.parse(named)
            context.rules.check(target, context.brokers.view.targets)
            async with asyncio.timeout(context.config.targets.broker_proxy_connect_timeout_s):
                broker, _ = await context.network.connect(
                    lambda: handshake, target.host, target.port
                )
                answer = await handshake.answer
        except TargetRefused as error:
            self._refuse(api.ServiceNotReady, "Target broker cannot be validated.", str(error))
        except (OSError, WireError) as error:  # a TimeoutError is an OSError
            handshake.abort()
            why = f"{named} cannot be reached: {error!r}"
            self._refuse(api.ServiceNotReady, "Target broker isn't available.", why)
        except BaseException:
            handshake.abort()
            raise
        else:
            self._splice(broker, to_broker=rest, to_client=answer)

    def _splice(self, broker: asyncio.Transport, *, to_broker: bytes, to_client: bytes) -> None:
        client = self._transport
        if client.is_closing() or broker.is_closing():
            broker.abort()
            self._close("the broker closed the connection")
            return
        self._leave()
        leave = partial(self._context.limits.leave, self._host)
        Splice(client, broker, self._context.splices, on_end=leave).begin(to_broker, to_client)

    # Questions

    def _asked(self, command: BaseCommand) -> None:
        kind = command.type
        if kind in QUESTIONS:
            task = self._context.lookups.ask(command, self._transport.write)
            if task is not None:
                self._keep(task)
                self._review_reading()
        elif kind == BaseCommand.PING:
            self._transport.write(PONG)
        elif kind == BaseCommand.CONNECT:
            raise WireError("CONNECT is the first command of a connection, and comes once")
        elif kind != BaseCommand.PONG:
            reason = f"{PART_NAMES[kind]} is for brokers: a proxy is told which by CONNECT"
            refusal = encode_refusal(command, api.NotAllowedError, reason)
            if refusal is None:
                raise WireError(reason)
            self._transport.write(refusal)

    def _review_reading(self) -> None:
        if self._state is State.ASKING and not self._transport.is_closing():
            if self._is_slow or len(self._tasks) >= QUESTIONS_MAX:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _check_alive(self) -> None:
        """Every keep-alive interval: ask, and give up on a client that said nothing since. One that
        is not read since it waits for so many answers cannot be heard."""
        if not self._is_heard and len(self._tasks) < QUESTIONS_MAX:
            log.info("client cut off: no sign of life", extra={"client": self._host})
            self._transport.abort()
            return
        self._is_heard = False
        self._transport.write(PING)
        self._set_timer(self._check_alive)

    # The end

    def _refuse(self, error: ServerError.ValueType, message: str, reason: str) -> None:
        """Tell the client little and the log why; then close the connection."""
        if not self._transport.is_closing():
            self._transport.write(encode_error(NO_REQUEST_ID, error, message))
        self._close(reason)

    def _close(self, reason: str) -> None:
        """Close, after what was written has left; a client that does not take it is cut off."""
        if self._state is not State.ENDED:
            log.info("connection closed", extra={"client": self._host, "reason": reason})
            self.close()

    def close(self) -> None:
        """Close, after what was written has left, if the client takes it soon."""
        self._leave()
        self._transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._context.config.keepalive_s, self._transport.abort)

    def _leave(self) -> None:
        """Nothing is done for the client any more."""
        self._state = State.ENDED
        self._context.open.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    # Time and tasks

    def _set_timer(self, act: Callable[..., None], *arguments: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._context.config.keepalive_s, act, *arguments)

    def _run(self, work: Coroutine[Any, Any, object], name: str) -> None:
        self._keep(self._context.spawn(work, name))

    def _keep(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) == QUESTIONS_MAX - 1:
            self._review_reading()


class BrokerHandshake(asyncio.Protocol):
    """The broker's side until it has answered ``connect``: ``answer`` is all that it said by then,
    of which the first frame is one that brokers answer CONNECT with."""

    def __init__(self, connect: bytes) -> None:
        self._connect = connect
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker took the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        """Wait for a whole frame, and look at it."""
        assert self._transport is not None
        if self.answer.done():
            return
        try:
            buffer, bounds = self._frames.feed(data)
            if not bounds:
                return
            command, _ = parse_command(buffer, *bounds[0])
        except WireError as error:
            self._fail(error)
            return
        self._transport.pause_reading()
        if command.type in FIRST_ANSWERS:
            self.answer.set_result(buffer)
        else:
            self._fail(WireError("no broker answers CONNECT like that"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed the connection."""
        if not self.answer.done():
            self._fail(exc or ConnectionResetError("the broker closed it"))

    def _fail(self, error: Exception) -> None:
        self.answer.set_exception(error)
        self.answer.exception()  # nothing may wait for it any more, which is no error

    def abort(self) -> None:
        """Give the connection up, if there is one."""
        if self._transport is not None:
            self._transport.abort()
