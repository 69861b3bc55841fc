"""One client's connection to the proxy, from its first byte until it is joined to a broker.

    STARTED ──CONNECT─────────────────────▶ ASKING    asks for topics, for as long as it stays
       │    └─CONNECT proxy_to_broker_url─▶ JOINING ──the broker answers──▶ spliced to its broker

The proxy answers CONNECT itself where a client asks for topics. Where the client names a broker,
its CONNECT goes there, and the broker's answer comes back: versions, limits, challenges and
refusals are between those two. From then on a ``Splice`` has both transports, and nothing here is
called any more.
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
from geminga_proxy.broker_handshake import BrokerHandshake
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.errors import TargetRefused
from geminga_proxy.lookups import FORWARDED_COMMANDS, Lookups
from geminga_proxy.splice import Splice, Splices
from geminga_runtime.network import Network
from geminga_server.connection_limits import ConnectionLimits, Limit

log = logging.getLogger(__name__)

# Requests are names and patterns. The longest that clients and brokers send before they are joined
# are credentials (a token with many claims, a chain of certificates: tens of KiB). Larger frames
# are for brokers, and pass through splices unparsed.
FRAME_BYTES_MAX = 128 * 1024
# Requests of one client that wait for brokers' answers; with as many its socket is not read. A
# client with thousands of topics asks for all of them at once. Memory: each holds its request and a
# task, some KiB, so a client can take a few MiB of the proxy.
REQUESTS_MAX = 1_000


class State(Enum):
    """How far a connection is."""

    # Its CONNECT is not whole yet.
    STARTED = auto()
    # It asks for topics.
    ASKING = auto()
    # The broker that it named is being connected to.
    JOINING = auto()
    # Joined, so that this is no longer its protocol; or refused, or lost. Entered once, and never
    # left.
    ENDED = auto()


@dataclass(slots=True)
class ConnectionCounts:
    """Connections of clients since the start, and how many of them were refused."""

    made: int = 0
    rejected: int = 0


@dataclass(slots=True)
class ConnectionContext:
    """What all connections share."""

    config: ProxyConfig
    network: Network
    brokers: Brokers
    lookups: Lookups
    # Knows those that have left this state machine: a splice has both transports then.
    splices: Splices
    # A connection is counted here from ``_admit`` until it is lost or its splice ends, whichever of
    # the two has it.
    limits: ConnectionLimits
    rules: TargetRules
    spawn: Callable[[Coroutine[Any, Any, object], str], asyncio.Task[object]]
    counts: ConnectionCounts = field(default_factory=ConnectionCounts)
    # Connections that are not joined, in the order in which they came. Never one that is ENDED.
    open: dict[ClientConnection, None] = field(default_factory=dict)


class ClientConnection(asyncio.Protocol):
    """The proxy's end of a client's connection, until a splice takes it over."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._state = State.STARTED
        # What came before CONNECT was whole. At most one frame and what came with it: ``_begin``
        # refuses longer ones by their first bytes.
        self._early = bytearray()
        # What comes after it, where the client asks for topics.
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport
        # A balancer's header of the PROXY protocol may come first. Due at most once, before
        # everything else.
        self._is_header_due = context.config.ha_proxy_protocol_enabled
        # The client's address, by which connections are limited.
        self._host = ""
        # Whether ``limits`` counts this connection under ``_host``. After ``_leave`` for a splice
        # it is the splice that ends the counting.
        self._is_admitted = False
        # What is due next: CONNECT, a sign of life, or the end of an orderly close. At most one at
        # a time: each state has one thing that it waits for.
        self._timer: asyncio.TimerHandle | None = None
        # Something came since the last PING, commands or not.
        self._is_heard = True
        # The client does not take its answers.
        self._is_slow = False
        # What works for this client, and ends with it. Ended by ``_leave``. The length is the
        # number of requests that have no answer yet.
        self._tasks: set[asyncio.Task[object]] = set()

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; it has a keep-alive interval to say CONNECT."""
        context = self._context
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        # Before it is admitted, so that refused connections are counted as made, too.
        context.counts.made += 1
        # One that is refused has no timer: it is closed already, after its last frame.
        if self._admit(str(peer[0]) if peer else "unknown"):
            context.open[self] = None
            self._set_timer(self._close, "it did not say CONNECT in time")

    def _admit(self, host: str) -> bool:
        """Count the connection as one from ``host``; False where it is one too many.

        That is the peer's address first, then the client's, where the peer is a balancer that says
        it. A refusal has upstream's words.
        """
        limits = self._context.limits
        # The balancer's address no longer counts once the client's is known.
        if self._is_admitted:
            # First out, then in: where the client comes from the balancer's own address, the count
            # must not go beyond the limit by one.
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
        # Also called where the client goes while it is being joined: the task is cancelled then. A
        # splice has set its own protocol, so this is not called for connections that are joined.
        self._leave()
        # Once for each ``_admit``: the flag is False for those that were refused.
        if self._is_admitted:
            self._context.limits.leave(self._host)

    def pause_writing(self) -> None:
        """The client does not take its answers: take no more of its requests."""
        self._is_slow = True
        self._review_reading()

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._is_slow = False
        self._review_reading()

    def data_received(self, data: bytes) -> None:
        """Take the commands that are whole now; garbage closes the connection."""
        self._is_heard = True
        try:
            if self._state is State.STARTED:
                self._early += data
                self._begin()
            # In JOINING reading is paused, and in ENDED nothing is of interest: both ignore what
            # still comes.
            elif self._state is State.ASKING:
                buffer, bounds = self._frames.feed(data)
                # Several commands may come in one read; each is answered on its own, in any order.
                for start, end in bounds:
                    self._take(parse_command(buffer, start, end)[0])
        except WireError as error:
            self._close(str(error))

    # CONNECT

    def _begin(self) -> None:
        """Look for CONNECT at the beginning of what came.

        What follows is not parsed here: it may be meant for a broker, which takes larger frames.
        """
        early = self._early
        # The balancer's header comes before everything else, and may come in pieces.
        if self._is_header_due:
            # Raises ``WireError`` for what begins like a header and is none.
            header = read_proxy_header(bytes(early))
            if header is None:
                return
            self._is_header_due = False
            del early[: header.size_bytes]
            # The client's address takes the place of the balancer's in the limits.
            if header.source is not None and not self._admit(header.source):
                return
        # Four bytes of size, then the frame: see ``FRAME_SIZE``.
        if len(early) < FRAME_SIZE_BYTES:
            return
        (frame_bytes,) = FRAME_SIZE.unpack_from(early)
        # From the size alone, before the frame is buffered.
        if frame_bytes > FRAME_BYTES_MAX:
            raise OversizedFrame(frame_bytes, FRAME_BYTES_MAX)
        end = FRAME_SIZE_BYTES + frame_bytes
        # The rest of the frame comes with a later read, which calls this again with all of it.
        if len(early) < end:
            return
        # What follows CONNECT belongs to the next stage: to the broker where one is named, else to
        # ``_frames``.
        frame, rest = bytes(early[:end]), bytes(early[end:])
        early.clear()
        command, _ = parse_command(frame, FRAME_SIZE_BYTES, end)
        if command.type != BaseCommand.CONNECT:
            raise WireError("the first command must be CONNECT")
        connect = command.connect
        if connect.proxy_to_broker_url:
            # Nothing is read until a splice does: what the client sends meanwhile is the broker's.
            self._state = State.JOINING
            self._transport.pause_reading()
            self._keep(self._context.spawn(self._join(connect, rest), "join a broker"))
            return
        self._state = State.ASKING
        # The proxy asks for no credentials: it only tells where topics are. A broker that a client
        # is joined to authenticates the client itself.
        version = agreed_version(connect.protocol_version)
        # Before the rest is taken: the answer to CONNECT must be the first that the client gets.
        self._transport.write(encode_connected(version, None, PROXY_FEATURES))
        # From "say CONNECT in time" to "show a sign of life".
        self._set_timer(self._check_alive)
        # The state is ASKING now, so this goes to ``_frames``.
        if rest:
            self.data_received(rest)

    async def _join(self, connect: api.CommandConnect, rest: bytes) -> None:
        """Connect to the broker that the client named, and splice the two.

        Of a failure the client is told little: a stranger could learn from it what else there is in
        the proxy's network.
        """
        context, named = self._context, connect.proxy_to_broker_url
        # For the broker this is a client like any other, but for the proxy's version in its
        # CONNECT.
        connect.ClearField("proxy_to_broker_url")
        # ``CommandConnect.proxy_version``, which only a proxy sets.
        connect.proxy_version = SERVER_VERSION
        handshake = BrokerHandshake(
            encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect)),
            frame_bytes_max=FRAME_BYTES_MAX,
        )
        try:
            target = Target.parse(named)
            # Before any connection is made: what the rules refuse must not even be probed.
            context.rules.check(target, context.brokers.view.targets)
            # One time-out for connecting and answering: a server that accepts and says nothing is
            # no broker.
            async with asyncio.timeout(context.config.targets.broker_proxy_connect_timeout_s):
                broker, _ = await context.network.connect(
                    lambda: handshake, target.host, target.port
                )
                answer = await handshake.answer
        # The two messages are upstream's.
        except TargetRefused as error:
            self._refuse(api.ServiceNotReady, "Target broker cannot be validated.", str(error))
        except (OSError, WireError) as error:  # a TimeoutError is an OSError
            # Whether or not the connection was made.
            handshake.abort()
            why = f"{named} cannot be reached: {error!r}"
            self._refuse(api.ServiceNotReady, "Target broker isn't available.", why)
        except BaseException:
            # Cancelled, as the client has gone: the connection to the broker must not stay open.
            handshake.abort()
            raise
        else:
            # Either may have gone while the answer was on its way to this task.
            client = self._transport
            if client.is_closing() or broker.is_closing():
                broker.abort()
                self._close("the broker closed the connection")
                return
            # Takes the connection out of ``open``, and ends its timer: from here on the splice is
            # in charge.
            self._leave()
            # It stays counted until the splice ends, which calls ``leave``: ``connection_lost``
            # below is not called any more, as the splice sets its own protocol.
            leave = partial(context.limits.leave, self._host)
            splice = Splice(client, broker, context.splices, on_end=leave)
            splice.begin(to_broker=rest, to_client=answer)

    # Requests of a client that asks for topics

    def _take(self, command: BaseCommand) -> None:
        """Answer a command of a client that asks for topics, or have a broker answer it."""
        kind = command.type
        if kind in FORWARDED_COMMANDS:
            task = self._context.lookups.ask(command, self._transport.write)
            # None: refused at once, as the proxy has too many requests.
            if task is not None:
                self._keep(task)
                self._review_reading()
        elif kind == BaseCommand.PING:
            self._transport.write(PONG)
        elif kind == BaseCommand.CONNECT:
            raise WireError("CONNECT is the first command of a connection, and comes once")
        elif kind != BaseCommand.PONG:
            # PRODUCER, SUBSCRIBE and all that follow them need the broker itself.
            reason = f"{PART_NAMES[kind]} is for brokers: a proxy is told which by CONNECT"
            refusal = encode_refusal(command, api.NotAllowedError, reason)
            # A command without a request id cannot be refused by an answer: the connection is
            # closed instead.
            if refusal is None:
                raise WireError(reason)
            self._transport.write(refusal)

    def _review_reading(self) -> None:
        """Read the client's socket, or stop reading it, as holds now."""
        if self._state is State.ASKING and not self._transport.is_closing():
            # Two reasons to stop, either of which is enough: so both are looked at again at each
            # change.
            if self._is_slow or len(self._tasks) >= REQUESTS_MAX:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _check_alive(self) -> None:
        """Send a PING every keep-alive interval; cut off a client that sent nothing since."""
        # A client whose socket is not read, because it waits for so many answers, cannot be heard.
        if not self._is_heard and len(self._tasks) < REQUESTS_MAX:
            log.info("client cut off: no sign of life", extra={"client": self._host})
            self._transport.abort()
            return
        # Set again by whatever the client sends until the next check. A PONG to the PING below
        # counts as anything else does.
        self._is_heard = False
        self._transport.write(PING)
        self._set_timer(self._check_alive)

    # The end

    def _refuse(self, error: ServerError.ValueType, message: str, reason: str) -> None:
        """Tell the client little and the log why; then close the connection."""
        # The transport may have been lost while the broker was asked.
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
        # First: the tasks of this client must not write to a transport that closes.
        self._leave()
        self._transport.close()
        loop = asyncio.get_running_loop()
        # ``close`` waits until the client has taken what was written, which a dead one never does.
        self._timer = loop.call_later(self._context.config.keepalive_s, self._transport.abort)

    def _leave(self) -> None:
        """Stop everything that is done for the client here."""
        # Before the tasks are cancelled: what they still do finds the connection ENDED.
        self._state = State.ENDED
        # Whatever follows, the end of the proxy need not close this one any more.
        self._context.open.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        # The task that joins the client to its broker calls this itself, and must not end by it.
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    # Time and tasks

    def _set_timer(self, act: Callable[..., None], *arguments: object) -> None:
        if self._timer is not None:
            # The former one was for the stage before.
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._context.config.keepalive_s, act, *arguments)

    def _keep(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        # Only at this number: below it the socket is read already.
        if len(self._tasks) == REQUESTS_MAX - 1:
            self._review_reading()
