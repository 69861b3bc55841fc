"""One client's TCP connection: frames in, frames out, who the client is, and when it is dead.

All frames of one read are handled before anything is written; what they and the topics answer is
collected and written once before the loop turns. SENDs and plain ACKs are taken apart by hand and
go straight to their producers and consumers; every other command goes, by its type, to one of the
handler groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

from google.protobuf.message import Message

from geminga_broker.sessions.consuming import Consuming
from geminga_broker.sessions.context import SessionContext
from geminga_broker.sessions.handshake import Handshake
from geminga_broker.sessions.lookups import Lookups
from geminga_broker.sessions.publishing import Publishing
from geminga_broker.sessions.schemas import Schemas
from geminga_broker.sessions.topic_listing import TopicListing
from geminga_broker.sessions.unserved import encode_incomplete, encode_unknown, encode_unserved
from geminga_protocol.errors import WireError
from geminga_protocol.framing import Bounds, FrameReader
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.ack import parse_ack
from geminga_protocol.pulsar.answers import encode_refusal
from geminga_protocol.pulsar.commands import PART_NAMES, PING, PONG, parse_command
from geminga_protocol.pulsar.errors import IncompleteCommand, UnknownCommand
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action, Principal, Resource

log = logging.getLogger(__name__)

# Outgoing bytes collected in one go before they are handed to the transport.
UNFLUSHED_BYTES_MAX = 1024 * 1024
# Pieces that are larger on average go to the transport one by one: joining them would copy them.
JOINED_BYTES_MAX = 4096
# Above this many bytes in the transport, consumers on this connection get nothing more.
WRITE_HIGH_WATER_BYTES = 4 * 1024 * 1024
# Bytes published and not yet durable, over which the socket is not read.
PUBLISH_HIGH_WATER_BYTES = 16 * 1024 * 1024
# The same over all connections of the broker.
UNCONFIRMED_BYTES_MAX = 128 * 1024 * 1024
# Commands (lookups, subscribes ...) in progress at once on one connection: a client that sends more
# without waiting is not read until some are done.
COMMANDS_IN_PROGRESS_MAX = 5_000
# A client that publishes too fast is not read; so often is it looked whether it still must not.
THROTTLE_REVIEW_S = 1.0

Handler = Callable[[Any], None]


# The type of the command that a part makes (each command has a part of its own kind).
_TYPES = {
    field.message_type.full_name: field.number
    for field in api.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def _enclosed(part: Message) -> api.BaseCommand:
    """The whole command that ``part`` belongs to."""
    number = _TYPES[part.DESCRIPTOR.full_name]
    command = api.BaseCommand(type=cast(Any, number))
    getattr(command, PART_NAMES[number]).CopyFrom(part)
    return command


class Connection(asyncio.Protocol):
    """The broker's end of one connection; also the session its producers and consumers live on.

    ``handlers`` has one for each type of command that is served but SEND. ``listener`` is the
    advertised listener whose bind address the client connected to; "" is the internal one.
    """

    def __init__(self, context: SessionContext, listener: str = "") -> None:
        self.context = context
        self.listener = listener
        self.out: list[bytes] = []
        self.is_writable = True
        self.address = ""
        self._host = ""
        self.client_version = ""
        self.protocol_version = 0
        self.gets_broker_entries = False
        self.principal: Principal | None = None
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(context.config.frame_bytes_max)
        self._unflushed_bytes = 0
        self._is_flush_scheduled = False
        self._is_reading_paused = False
        # Who says for how long this client is not read, as it publishes faster than it may.
        self._throttles: dict[Callable[[float], float], None] = {}
        self._unthrottle: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._unconfirmed_bytes = 0
        # In the order of starting: a set's would differ from run to run of a simulation.
        self._running: dict[asyncio.Task[object], None] = {}
        self._last_of: dict[object, asyncio.Task[object]] = {}
        self._heard_since_ping = True
        self._unsent_bytes = 0  # at the last keep-alive, of a client that does not keep up
        self._heard = asyncio.Event()
        self._keepalive: asyncio.TimerHandle | None = None
        self.handshake = Handshake(self)
        self.publishing = Publishing(self)
        self.consuming = Consuming(self)
        self.topic_listing = TopicListing(self)
        lookups = Lookups(self)
        self.handlers: dict[int, Handler] = {
            api.BaseCommand.PING: self._handle_ping,
            api.BaseCommand.PONG: lambda _: None,
            **self.publishing.handlers,
            **self.consuming.handlers,
            **lookups.handlers,
            **Schemas(self).handlers,
            **self.topic_listing.handlers,
        }

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else "unknown"
        self.address = f"/{peer[0]}:{peer[1]}" if peer else "/unknown"
        self.context.counts.connections_made += 1
        exceeded = self.context.limits.admit(self._host)
        if exceeded is not None:
            self.handshake.refuse(exceeded)
            return
        self.context.connections[self] = None
        self._keepalive = self._loop.call_later(self.context.config.keepalive_s, self._check_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it its producers and consumers."""
        del exc
        self._is_closed = True
        self._heard.set()
        self.is_writable = False
        if self in self.context.connections:
            del self.context.connections[self]
            self.context.limits.leave(self._host)
        self.context.counts.connections_closed += 1
        self.context.counts.connections_refused += self.principal is None
        self.context.held_back.pop(self, None)
        if self._keepalive is not None:
            self._keepalive.cancel()
        if self._unthrottle is not None:
            self._unthrottle.cancel()
        self.handshake.disconnected()
        self.publishing.disconnected()
        self.consuming.disconnected()
        self.topic_listing.disconnected()
        for task in list(self._running):
            task.cancel()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write: its consumers get nothing for now, and its
        commands, which would be answered, are not read."""
        self.is_writable = False
        self.review_pressure()

    def resume_writing(self) -> None:
        """It caught up."""
        self.is_writable = not self._is_closed
        self._unsent_bytes = 0
        self.review_pressure()
        self.consuming.resume()

    # Frames in

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame of one read."""
        self._heard_since_ping = True
        if not self._heard.is_set():
            self._heard.set()
        try:
            buffer, bounds = self._frames.feed(data)
            if self.principal is None:
                if self.handshake.is_refused:
                    self.handshake.tell_refused()
                else:
                    self._handle_first(buffer, bounds)
                return
            take_sends = self.publishing.take_sends
            index = 0
            while index < len(bounds):
                index = take_sends(buffer, bounds, index)
                if index < len(bounds):
                    self._handle_frame(buffer, *bounds[index])
                    index += 1
        except WireError as error:
            self._close_because(str(error))
        else:
            self.review_pressure()

    def _handle_first(self, buffer: bytes, bounds: Bounds) -> None:
        """Frames before the client is known: the first must be CONNECT; the rest follow it."""
        for start, end in bounds:
            if self.principal is None:
                command, _ = parse_command(buffer, start, end)
                if command.type != api.BaseCommand.CONNECT:
                    raise WireError(f"the first command must be CONNECT, not {command.type}")
                self.principal = self.handshake.accept(command.connect)
            else:
                self._handle_frame(buffer, start, end)

    def _handle_frame(self, buffer: bytes, start: int, end: int) -> None:
        ack = parse_ack(buffer, start, end)
        if ack is not None:
            self.consuming.acknowledge(*ack)
            return
        try:
            command, payload_start = parse_command(buffer, start, end)
        except UnknownCommand as error:
            self._tell_or_close(encode_unknown(error), error)
            return
        except IncompleteCommand as error:
            self._tell_or_close(encode_incomplete(error), error)
            return
        kind = command.type
        if kind == api.BaseCommand.SEND:
            self.publishing.publish_unusual(command.send, buffer, payload_start, end)
            return
        handler = self.handlers.get(kind)
        if handler is not None:
            handler(getattr(command, PART_NAMES[kind]))
        elif kind == api.BaseCommand.CONNECT:
            raise WireError("CONNECT is the first command of a connection, and comes once")
        else:
            self.send(encode_unserved(command))

    def _tell_or_close(self, answer: bytes | None, error: WireError) -> None:
        """Refuse a command that cannot be taken; one that cannot be answered is the end."""
        if answer is None:
            raise error
        self.send(answer)

    def _handle_ping(self, _: Message) -> None:
        self.send(PONG)

    # Commands that take time

    def start(
        self, command: Message, work: Coroutine[Any, Any, None], *, after: object = None
    ) -> None:
        """Run ``work``, which answers ``command``, as a task; its error is answered in the form
        that this command's clients expect.

        Works given the same ``after`` run one after the other: a consumer's commands in the order
        in which they came, while another's slow topic delays nobody.
        """
        predecessor = self._last_of.get(after) if after is not None else None
        task = self._loop.create_task(
            self._run(command, work, predecessor),
            name=f"{self.address} {type(command).__name__}",
        )
        self._running[task] = None
        if after is not None:
            self._last_of[after] = task

        def finished(_: asyncio.Task[None]) -> None:
            work.close()  # it may never have begun
            self._finished(after, task)

        task.add_done_callback(finished)

    def _finished(self, after: object, task: asyncio.Task[object]) -> None:
        del self._running[task]
        if self._last_of.get(after) is task:
            del self._last_of[after]
        if self._is_reading_paused:
            self.review_pressure()

    async def _run(
        self,
        command: Message,
        work: Coroutine[Any, Any, None],
        predecessor: asyncio.Task[object] | None,
    ) -> None:
        try:
            if predecessor is not None:
                await asyncio.wait((predecessor,))
            async with asyncio.timeout(self.context.operation_timeout_s):
                await work
        except GemingaError as error:
            self.refuse(command, self.server_error(error), str(error))
        except TimeoutError:
            self.refuse(command, api.ServiceNotReady, "the broker took too long: try again")
        except Exception:
            log.exception("request failed", extra={"client": self.address})
            self.refuse(command, api.UnknownError, "internal error of the broker")

    def refuse(self, command: Message, error: api.ServerError.ValueType, reason: str) -> None:
        """Tell the client that ``command`` failed, where it expects an answer at all: in the
        command's own response if that has room for an error, in ERROR otherwise."""
        answer = encode_refusal(_enclosed(command), error, reason)
        if answer is not None:
            self.send(answer)

    @staticmethod
    def server_error(error: GemingaError) -> api.ServerError.ValueType:
        """The ``ServerError`` a client is told; UnknownError where the code names none."""
        if error.code in api.ServerError.keys():  # noqa: SIM118 (an enum wrapper, not a dict)
            return api.ServerError.Value(error.code)
        return api.UnknownError

    async def authorize(self, action: Action, resource: Resource) -> None:
        """Raise ``NotAuthorized`` where this client may not do that."""
        assert self.principal is not None
        await self.context.authorizer.authorize(self.principal, action, resource)

    # Frames out

    def send(self, frame: bytes) -> None:
        """Queue ``frame``; it is written before the loop turns."""
        self.out.append(frame)
        self.flush_soon()

    def flush_soon(self) -> None:
        """See that what is in ``out`` is written before the loop turns."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def delivered(self, size_bytes: int) -> None:
        """Messages of ``size_bytes`` were put in ``out``: written at once when they are many."""
        self._unflushed_bytes += size_bytes
        if self._unflushed_bytes > UNFLUSHED_BYTES_MAX:
            self._write_out()
        else:
            self.flush_soon()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        self._write_out()

    def _write_out(self) -> None:
        out = self.out
        delivered_bytes, self._unflushed_bytes = self._unflushed_bytes, 0
        if out and not self._is_closed:
            if delivered_bytes > len(out) * JOINED_BYTES_MAX:
                self.transport.writelines(out)
            else:
                self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    # Pressure and life

    def published(self, size_bytes: int) -> None:
        """``size_bytes`` were taken from this client and are not durable yet."""
        self._unconfirmed_bytes += size_bytes
        self.context.unconfirmed_bytes += size_bytes

    def confirmed(self, size_bytes: int) -> None:
        """``size_bytes`` of those are durable now (or given up)."""
        self._unconfirmed_bytes -= size_bytes
        context = self.context
        context.unconfirmed_bytes -= size_bytes
        if context.held_back and context.unconfirmed_bytes <= UNCONFIRMED_BYTES_MAX // 2:
            for connection in list(context.held_back):
                connection.review_pressure()

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """Do not read the client for as long as ``wait_s`` says."""
        self._throttles[wait_s] = None
        if self._unthrottle is None:
            self._review_throttles()

    def _review_throttles(self) -> None:
        """Ask those who hold the client back; a limit may have been lifted meanwhile."""
        now_s = self.context.clock.monotonic()
        waits_s = {each: each(now_s) for each in self._throttles}
        self._throttles = {each: None for each, wait_s in waits_s.items() if wait_s > 0}
        self._unthrottle = None
        if self._throttles and not self._is_closed:
            delay_s = min(max(waits_s.values()), THROTTLE_REVIEW_S)
            self._unthrottle = self._loop.call_later(delay_s, self._review_throttles)
        self.review_pressure()

    def review_pressure(self) -> None:
        """Stop reading the socket while too much is under way, go on when half of it is done."""
        context = self.context
        if not self._is_reading_paused:
            if (
                not self.is_writable
                or self._throttles
                or self._unconfirmed_bytes > PUBLISH_HIGH_WATER_BYTES
                or context.unconfirmed_bytes > UNCONFIRMED_BYTES_MAX
                or len(self._running) > COMMANDS_IN_PROGRESS_MAX
            ):
                self._is_reading_paused = True
                context.held_back[self] = None
                self.transport.pause_reading()
        elif (
            self.is_writable
            and not self._throttles
            and self._unconfirmed_bytes <= PUBLISH_HIGH_WATER_BYTES // 2
            and context.unconfirmed_bytes <= UNCONFIRMED_BYTES_MAX // 2
            and len(self._running) <= COMMANDS_IN_PROGRESS_MAX
        ):
            self._is_reading_paused = False
            context.held_back.pop(self, None)
            if not self._is_closed:
                self.transport.resume_reading()

    def _check_alive(self) -> None:
        """Every keep-alive interval: ask, and give up on who has not been heard since, or, where
        it is not read for its own slowness, took nothing."""
        unsent_bytes = 0 if self.is_writable else self.transport.get_write_buffer_size()
        if unsent_bytes:
            is_dead = unsent_bytes >= self._unsent_bytes > 0
        else:
            is_dead = not self._heard_since_ping and not self._is_reading_paused
        self._unsent_bytes = unsent_bytes
        if is_dead:
            self._give_up()
            return
        self._heard_since_ping = False
        if self.principal is not None:
            self.send(PING)
        self._keepalive = self._loop.call_later(self.context.config.keepalive_s, self._check_alive)

    async def is_alive(self) -> bool:
        """Ask the client for a sign of life; False when none came in time (it is closed then).

        One that does not keep up with us must take something in that time. One that is not read
        for other reasons counts as alive: its answer could not be heard.
        """
        if self._is_closed:
            return False
        if not self.is_writable:
            await self._check_taking()
        elif not self._is_reading_paused:
            await self._check_answering()
        return not self._is_closed

    async def _check_answering(self) -> None:
        self._heard.clear()
        self.send(PING)
        try:
            async with asyncio.timeout(self.context.liveness_check_s):
                await self._heard.wait()
        except TimeoutError:
            self._give_up()

    async def _check_taking(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        await asyncio.sleep(self.context.liveness_check_s)
        if not self.is_writable and self.transport.get_write_buffer_size() >= unsent_bytes:
            self._give_up()

    def _close_because(self, reason: str) -> None:
        log.info("connection closed", extra={"client": self.address, "reason": reason})
        self.close()

    def _give_up(self) -> None:
        """What is queued for a dead client would keep the connection, and its consumers, for as
        long as the kernel tries to send it."""
        self._close_because("no sign of life")
        self.transport.abort()

    def close(self) -> None:
        """Write what is queued, then close."""
        self._write_out()
        self._is_closed = True
        self.is_writable = False
        self.transport.close()
