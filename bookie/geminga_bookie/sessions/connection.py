"""A client's connection, apart from what its requests mean: when its socket is read, and when not.

The order of events: the connection is counted and may be refused; the client is authorized; its
requests are taken; between two of them it may ask for TLS (START_TLS). Whatever the client sends
before it is authorized, or together with a handshake, waits in ``_early``.

A socket is not read for as long as at least one reason holds it (``_held_by``). Each reason is a
bit, so that no reason lifts another.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from geminga_bookie.sessions.context import SessionContext
from geminga_protocol.errors import WireError
from geminga_protocol.framing import Bounds, FrameReader
from geminga_runtime.errors import GemingaError
from geminga_runtime.network import TLS_HANDSHAKE_TIMEOUT_S
from geminga_server.authorization import ANONYMOUS, Action

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

# Why a connection is not read.
HELD_BY_MEMORY = 1
HELD_BY_READS = 2
HELD_BY_WRITES = 4
HELD_BY_RARE = 8
HELD_BY_AUTHORIZATION = 16
HELD_BY_TLS = 32
# What comes all the same while one of these holds is kept for later, not taken.
_EARLY = HELD_BY_AUTHORIZATION | HELD_BY_TLS

# A client that waits longer for its first answer has given the bookie up.
AUTHORIZATION_TIMEOUT_S = 10.0


class ClientConnection(asyncio.Protocol, ABC):
    """A client's connection, from accept to close. A subclass takes its requests."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self.principal = ANONYMOUS
        # It keeps the beginning of a frame whose rest has not come yet: at most one frame for each
        # connection.
        self._frames = FrameReader(context.config.frame_bytes_max)
        # What answers are written to; None before and after the connection, and while it is
        # secured.
        self._transport: asyncio.Transport | None = None
        # The plain transport during a TLS handshake: no request is taken, no answer written.
        self._securing: asyncio.Transport | None = None
        self._is_secured = False
        # The client's address, by which connections are limited.
        self._host = ""
        self._is_admitted = False
        # The transport is paused exactly while this is not 0.
        self._held_by = 0
        # What came too early. It is little, as the socket is paused from the first read on.
        self._early = b""

    @abstractmethod
    def _take(self, buffer: bytes, bounds: Bounds) -> None:
        """Handle the frames of one read of the socket. Raises ``WireError``."""

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        context = self._context
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else "unknown"
        # BookKeeper's protocol has no words for a refusal: the end of the connection has to do.
        # From here to ``connection_lost`` the connection counts against the limits.
        self._is_admitted = context.limits.admit(self._host) is None
        if not self._is_admitted:
            self.abort()
            return
        context.back_pressure.join(self)
        # Held before anything can arrive: nothing is looked at until the client is known to be
        # allowed.
        self._hold(HELD_BY_AUTHORIZATION)
        context.spawn(self._authorize(), name="authorize a connection")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 the loop names it
        """The connection is gone."""
        # A refused connection was never counted, and must not give back another one's place.
        if self._is_admitted:
            self._context.limits.leave(self._host)
            self._context.back_pressure.leave(self)
        self._transport = self._securing = None

    def data_received(self, data: bytes) -> None:
        """Take the requests of one read of the socket; garbage in it closes the connection."""
        if self._held_by:
            # uvloop begins to read after ``connection_made``, even where that has paused it: one
            # read comes through.
            if self._transport is not None:
                self._transport.pause_reading()
            # The other reasons only stop the socket: the session takes what has been read already,
            # which is no more than one read.
            if self._held_by & _EARLY:
                self._early += data
                return
        try:
            buffer, bounds = self._frames.feed(data)
            if bounds:
                self._take(buffer, bounds)
        except WireError as error:
            self._context.counters.connections_faulty += 1
            log.warning("connection closed: it sent what is no request", extra={"why": str(error)})
            self.close()

    def pause_writing(self) -> None:
        """The client takes its answers too slowly: take no more of its requests."""
        self._hold(HELD_BY_WRITES)

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._release(HELD_BY_WRITES)

    # What the bookie calls.

    def set_held(self, *, is_held: bool) -> None:
        """Read nothing from now on, as too much is in memory, or read again."""
        if is_held:
            self._hold(HELD_BY_MEMORY)
        else:
            self._release(HELD_BY_MEMORY)

    def close(self) -> None:
        """Send what was written, then close the connection."""
        transport = self._transport or self._securing
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        transport = self._transport or self._securing
        if transport is not None:
            transport.abort()

    # What subclasses call.

    def _hold(self, reason: int) -> None:
        # The first reason pauses the transport, and the last one that goes resumes it.
        if not self._held_by and self._transport is not None:
            self._transport.pause_reading()
        self._held_by |= reason

    def _release(self, reason: int) -> None:
        if self._held_by == reason and self._transport is not None:
            self._transport.resume_reading()
        self._held_by &= ~reason

    def _write_all(self, pieces: list[bytes]) -> None:
        if self._transport is not None:
            self._transport.writelines(pieces)

    def _begin_tls(self) -> bool:
        """Have the connection secured, if that is possible.

        The answer that says so goes out first: the handshake is another task, which begins in a
        later turn of the loop.
        """
        tls = self._context.tls
        if tls is None or self._is_secured or self._transport is None:
            return False
        # Set before the handshake: a second START_TLS on the connection is refused, whatever
        # becomes of the first.
        self._is_secured = True
        self._hold(HELD_BY_TLS)
        self._context.spawn(self._secure(tls), name="secure a connection")
        return True

    # Authorization and TLS.

    async def _authorize(self) -> None:
        """Take the first request when the client is known to be allowed to send any."""
        context = self._context
        try:
            async with asyncio.timeout(AUTHORIZATION_TIMEOUT_S):
                await context.authorize(self.principal, Action.ADMINISTER, context.resource)
        except (GemingaError, TimeoutError) as error:
            log.warning("connection refused", extra={"why": str(error)})
            self.abort()
        # The bookie closes, or the authorization has a bug: an unauthorized connection must not
        # stay open.
        except BaseException:
            self.abort()
            raise
        else:
            self._take_early(HELD_BY_AUTHORIZATION)

    async def _secure(self, tls: SSLContext) -> None:
        """Make the TLS handshake.

        Answers to earlier requests that become ready meanwhile are dropped: no client that begins
        TLS has sent any, and they must not go out in plain between the handshake's bytes.
        """
        # No answer is written from here on: ``_transport`` is None until the handshake is over.
        plain, self._transport = self._transport, None
        if plain is None:
            return  # the client is gone
        self._securing = plain
        secured: asyncio.Transport | None = None
        try:
            # Bytes that came in plain behind START_TLS are no handshake, and may be an attacker's.
            if not self._early:
                secured = await asyncio.get_running_loop().start_tls(
                    *(plain, self, tls),
                    server_side=True,
                    ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S,
                )
        except OSError as error:  # an SSLError is one
            log.warning("tls handshake failed", extra={"host": self._host, "why": str(error)})
        finally:
            if secured is None:
                plain.abort()
        # The client may have gone during the handshake.
        if secured is not None and not secured.is_closing():
            self._transport, self._securing = secured, None
            log.info("connection secured", extra={"host": self._host})
            # The new transport reads: carry over what else holds the connection.
            if self._held_by != HELD_BY_TLS:
                secured.pause_reading()
            self._take_early(HELD_BY_TLS)

    def _take_early(self, reason: int) -> None:
        """Go on with what came while the connection was held for ``reason``."""
        # Emptied first: ``data_received`` keeps the bytes again where another reason holds the
        # connection.
        early, self._early = self._early, b""
        self._release(reason)
        if early and self._transport is not None:
            self.data_received(early)
