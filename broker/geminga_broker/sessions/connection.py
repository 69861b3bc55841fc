"""One client's TCP connection: joins the transport, the session and the handlers of its commands.

All frames of one read are handled before anything is written. SENDs and plain ACKs are decoded by
hand and go straight to their producers and consumers; every other command goes, by its type, to one
of the handler groups. ``command_rules`` decides which commands end the connection (``states``), and
how commands without a handler are refused (``unserved``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, cast

from google.protobuf.message import Message

from geminga_broker.sessions.command_rules.states import CONNECTED, State, objection
from geminga_broker.sessions.command_rules.unserved import encode_undecoded, encode_unserved
from geminga_broker.sessions.commands.command_group import CommandGroup, Handler, Handlers
from geminga_broker.sessions.commands.consumers import ConsumerCommands
from geminga_broker.sessions.commands.handshake import Handshake
from geminga_broker.sessions.commands.lookups import LookupCommands
from geminga_broker.sessions.commands.producers import ProducerCommands
from geminga_broker.sessions.commands.schemas import SchemaCommands
from geminga_broker.sessions.commands.topic_listing import TopicListCommands
from geminga_broker.sessions.context import SessionContext
from geminga_broker.sessions.session import Session
from geminga_protocol.errors import WireError
from geminga_protocol.framing import Bounds, FrameReader
from geminga_protocol.pulsar.ack import parse_ack
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PART_NAMES, PONG, parse_command
from geminga_protocol.pulsar.errors import IncompleteCommand, UnknownCommand


class KeepAlive(CommandGroup):
    """Answers PING. PONG needs no answer: every read counts as a sign of life."""

    def handle_ping(self, _: Message) -> None:
        """PING."""
        self.session.send(PONG)

    def handle_pong(self, _: Message) -> None:
        """PONG."""

    handlers: ClassVar[Handlers] = {
        BaseCommand.PING: handle_ping,
        BaseCommand.PONG: handle_pong,
    }


# The groups of handlers that a connection has, in the order in which they learn of its end.
GROUPS: tuple[type[CommandGroup], ...] = (
    Handshake,
    ProducerCommands,
    ConsumerCommands,
    TopicListCommands,
    LookupCommands,
    SchemaCommands,
    KeepAlive,
)
# The handler of each served type of command but SEND, and its group. Made once for the process; a
# connection has only its groups.
HANDLERS: Mapping[int, tuple[type[CommandGroup], Handler]] = {
    kind: (group, handler) for group in GROUPS for kind, handler in group.handlers.items()
}
assert len(HANDLERS) == sum(len(group.handlers) for group in GROUPS), "each has one handler"


class Connection(asyncio.Protocol):
    """The broker's end of one connection.

    ``listener`` is as in ``Session``. ``session`` exists from ``connection_made`` on.
    """

    session: Session

    def __init__(self, context: SessionContext, listener: str = "") -> None:
        self._context = context
        self._listener = listener
        # Keeps the beginning of a frame whose end is not read yet; refuses frames that are too
        # large.
        self._frames = FrameReader(context.config.frame_bytes_max)

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, or refuse the connection where it exceeds a limit."""
        context = self._context
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        session = Session(context, cast("asyncio.Transport", transport), self._listener)
        self.session = session
        # The three that are called without a look at ``HANDLERS`` are kept by name, too.
        self._groups = {group: group(session) for group in GROUPS}
        self._handshake = cast(Handshake, self._groups[Handshake])
        self._producers = cast(ProducerCommands, self._groups[ProducerCommands])
        self._consumers = cast(ConsumerCommands, self._groups[ConsumerCommands])
        context.counts.connections_made += 1
        if context.is_over:
            session.close()
            return
        # Counted off in ``connection_lost``, and only for sessions that are in
        # ``context.sessions``.
        exceeded = context.limits.admit(session.host)
        if exceeded is None:
            # Only accepted connections are among the sessions, and count for the limits.
            context.sessions[session] = None
            self._handshake.begin()
        else:
            self._handshake.refuse(exceeded)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the client's producers and consumers."""
        del exc
        context, session = self._context, self.session
        # A refused connection is not among the sessions, and counts for no limit.
        if session in context.sessions:
            del context.sessions[session]
            context.limits.leave(session.host)
        context.counts.connections_closed += 1
        context.counts.connections_refused += session.principal is None
        # In this order: groups that look at the session find it closed, and commands in progress
        # find their producers and consumers gone when they are cancelled. First the state, then the
        # groups, then the tasks. The other way round a task that is cancelled late could still let
        # in a producer that no group would remove.
        session.lost()
        for group in self._groups.values():
            group.disconnected()
        session.cancel_requests()

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than the broker writes."""
        self.session.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client caught up, and send its consumers what waited for that."""
        self.session.resume_writing()
        self._consumers.resumed()

    # Frames in

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame of one read. HOT."""
        session = self.session
        session.liveness.heard()
        try:
            if session.state is CONNECTED:
                self._handle_frames(*self._frames.feed(data))
            else:
                self._handle_early(data)
        except WireError as error:
            # After a malformed frame the boundaries of the next ones are not known: nothing more is
            # read. What was handled before it is answered: closing writes the queued frames first.
            session.close_because(str(error))
        else:
            # Once per read, not per message: see ``BackPressure.published``.
            session.review_pressure()

    def _handle_frames(self, buffer: bytes, bounds: Bounds) -> None:
        take_sends = self._producers.take_sends
        # Frames of one read keep their order: an ACK behind SENDs is handled behind them.
        index = 0
        while index < len(bounds):
            # All SENDs that stand next to each other are taken in one call.
            index = take_sends(buffer, bounds, index)
            if index < len(bounds):
                start, end = bounds[index]
                ack = parse_ack(buffer, start, end)
                if ack is not None:
                    self._consumers.acknowledge(*ack)
                else:
                    self._handle_command(buffer, start, end)
                index += 1

    def _handle_early(self, data: bytes) -> None:
        """Handle what comes before the client is connected, or after the connection was closed."""
        session = self.session
        if session.state is State.REFUSED:
            self._handshake.tell_refused()
            return
        buffer, bounds = self._frames.feed(data)
        for index, (start, end) in enumerate(bounds):
            # Each command may change the state: the next one is judged by the new one.
            if session.state is State.CLOSED:
                return
            if session.state is CONNECTED:
                # Clients that wait for no answer send their first commands along with CONNECT.
                self._handle_frames(buffer, bounds[index:])
                return
            self._handle_command(buffer, start, end)

    def _handle_command(self, buffer: bytes, start: int, end: int) -> None:
        """Handle any command, in any state; raises ``WireError`` where it ends the connection."""
        try:
            command, payload_start = parse_command(buffer, start, end)
        except (UnknownCommand, IncompleteCommand) as error:
            refusal = encode_undecoded(error)
            if refusal is None or self.session.state is not CONNECTED:
                raise
            self.session.send(refusal)
            return
        # The state is asked before the table of handlers: what a client may send before it is
        # connected is decided in one place (``command_rules.states``).
        kind = command.type
        refused = objection(self.session.state, kind)
        if refused is not None:
            raise WireError(refused)
        served = HANDLERS.get(kind)
        if served is not None:
            group, handle = served
            handle(self._groups[group], getattr(command, PART_NAMES[kind]))
        elif kind == BaseCommand.SEND:
            # One with fields that ``take_sends`` does not decode.
            self._producers.publish_unusual(command.send, buffer, payload_start, end)
        else:
            self.session.send(encode_unserved(command))
