"""One client's TCP connection: glues the transport, the session and the handlers of its commands.

All frames of one read are handled before anything is written. SENDs and plain ACKs are taken apart
by hand and go straight to their producers and consumers; every other command goes, by its type, to
one of the handler groups. ``states`` says which commands end the connection, ``unserved`` what the
senders of commands that have no handler are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, cast

from google.protobuf.message import Message

from geminga_broker.sessions.command_rules.states import CONNECTED, State, objection
from geminga_broker.sessions.command_rules.unserved import (
    encode_incomplete,
    encode_unknown,
    encode_unserved,
)
from geminga_broker.sessions.commands.command_group import CommandGroup, Handler, Handlers
from geminga_broker.sessions.commands.consuming import ConsumerCommands
from geminga_broker.sessions.commands.handshake import Handshake
from geminga_broker.sessions.commands.lookups import LookupCommands
from geminga_broker.sessions.commands.publishing import ProducerCommands
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
    """Answers PING. PONG needs none: that its client lives is noted with every read."""

    def _handle_ping(self, _: Message) -> None:
        self._session.send(PONG)

    def _handle_pong(self, _: Message) -> None:
        pass

    handlers: ClassVar[Handlers] = {
        BaseCommand.PING: _handle_ping,
        BaseCommand.PONG: _handle_pong,
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
# For each type of command that is served, but for SEND, its handler and the group that it is of.
HANDLERS: Mapping[int, tuple[type[CommandGroup], Handler]] = {
    kind: (group, handler) for group in GROUPS for kind, handler in group.handlers.items()
}
assert len(HANDLERS) == sum(len(group.handlers) for group in GROUPS), "each has one handler"


class Connection(asyncio.Protocol):
    """The broker's end of one connection. ``listener`` is as in ``Session``, which is there from
    ``connection_made`` on.
    """

    session: Session

    def __init__(self, context: SessionContext, listener: str = "") -> None:
        self._context = context
        self._listener = listener
        self._frames = FrameReader(context.config.frame_bytes_max)

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        context = self._context
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        session = Session(context, cast("asyncio.Transport", transport), self._listener)
        self.session = session
        self._groups = {group: group(session) for group in GROUPS}
        self._handshake = cast(Handshake, self._groups[Handshake])
        self._producers = cast(ProducerCommands, self._groups[ProducerCommands])
        self._consumers = cast(ConsumerCommands, self._groups[ConsumerCommands])
        context.counts.connections_made += 1
        exceeded = context.limits.admit(session.host)
        if exceeded is None:
            context.sessions[session] = None
            self._handshake.begin()
        else:
            self._handshake.refuse(exceeded)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it its producers and consumers."""
        del exc
        context, session = self._context, self.session
        if session in context.sessions:
            del context.sessions[session]
            context.limits.leave(session.host)
        context.counts.connections_closed += 1
        context.counts.connections_refused += session.principal is None
        session.lost()
        for group in self._groups.values():
            group.disconnected()
        session.cancel_requests()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self.session.pause_writing()

    def resume_writing(self) -> None:
        """It caught up."""
        self.session.resume_writing()
        for group in self._groups.values():
            group.resumed()

    # Frames in

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame of one read."""
        session = self.session
        session.liveness.heard()
        try:
            if session.state is CONNECTED:
                self._handle_frames(*self._frames.feed(data))
            else:
                self._handle_early(data)
        except WireError as error:
            session.close_because(str(error))
        else:
            session.review_pressure()

    def _handle_frames(self, buffer: bytes, bounds: Bounds) -> None:
        take_sends = self._producers.take_sends
        index = 0
        while index < len(bounds):
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
        """What comes before the client is connected, or after the connection was closed."""
        session = self.session
        if session.state is State.REFUSED:
            self._handshake.tell_refused()
            return
        buffer, bounds = self._frames.feed(data)
        for index, (start, end) in enumerate(bounds):
            if session.state is State.CLOSED:
                return
            if session.state is CONNECTED:
                # Clients that wait for no answer send their first commands along with CONNECT.
                self._handle_frames(buffer, bounds[index:])
                return
            self._handle_command(buffer, start, end)

    def _handle_command(self, buffer: bytes, start: int, end: int) -> None:
        """Any command, in any state; raises ``WireError`` where it ends the connection."""
        try:
            command, payload_start = parse_command(buffer, start, end)
        except UnknownCommand as error:
            self._tell_or_close(encode_unknown(error), error)
            return
        except IncompleteCommand as error:
            self._tell_or_close(encode_incomplete(error), error)
            return
        kind = command.type
        refused = objection(self.session.state, kind)
        if refused is not None:
            raise WireError(refused)
        served = HANDLERS.get(kind)
        if served is not None:
            group, handle = served
            handle(self._groups[group], getattr(command, PART_NAMES[kind]))
        elif kind == BaseCommand.SEND:
            self._producers.publish_unusual(command.send, buffer, payload_start, end)
        else:
            self.session.send(encode_unserved(command))

    def _tell_or_close(self, answer: bytes | None, error: WireError) -> None:
        """Refuse a command that cannot be taken; one that cannot be answered is the end."""
        if answer is None or self.session.state is not CONNECTED:
            raise error
        self.session.send(answer)
