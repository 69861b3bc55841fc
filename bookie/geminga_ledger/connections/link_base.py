"""What links and connections of both protocols have in common.

``BookieStream`` is one TCP stream, cut into frames. ``LinkBase`` is the way to one bookie: it
outlives its streams and knows how the bookie behaves. When a link connects and tries again is for
its kinds to say: a V2 link (``links``) keeps trying while a writer is attached, a V3 link
(``v3_link``) connects when it is asked something.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar, cast

from geminga_ledger.config import LedgerConfig
from geminga_ledger.connections.dialer import CLOSING, Dialer
from geminga_ledger.errors import BookieUnavailable
from geminga_ledger.replication.bookie_health import BookieHealth
from geminga_protocol.errors import WireError
from geminga_protocol.framing import Bounds, FrameReader
from geminga_runtime.backoff import Backoff
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)


class BookieStream(asyncio.Protocol):
    """One TCP stream to a bookie. ``on_lost`` is called when it ends, unless by ``retire``."""

    def __init__(
        self, bookie_id: str, on_lost: Callable[[BookieStream], None], *, frame_bytes_max: int
    ) -> None:
        self._bookie_id = bookie_id
        self._on_lost = on_lost
        # Keeps the beginning of a frame that has not come as a whole yet.
        self._frames = FrameReader(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        # Until ``retire``: what comes after that is not for us any more.
        self._is_live = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open (``asyncio.Protocol``)."""
        # Not isinstance: uvloop's transports descend from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is over (``asyncio.Protocol``)."""
        del exc  # whatever the reason, what was not answered is asked again, here or elsewhere
        # Not for an end that ``retire`` brought about itself: its caller knows, and may have the
        # next stream already.
        if self._is_live:
            self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the bookie (``asyncio.Protocol``)."""
        # An aborted transport may still deliver what it has read.
        if not self._is_live:
            return
        try:
            # All frames of one read at once: ``receive`` sorts them, and calls each listener once.
            self.receive(*self._frames.feed(data))
        except WireError as error:
            log.warning(
                "bookie sent garbage, reconnecting",
                extra={"bookie": self._bookie_id, "error": str(error)},
            )
            self._on_lost(self)

    @abstractmethod
    def receive(self, buffer: bytes, bounds: Bounds) -> None:
        """Whole frames came. Raises ``WireError`` for what is not of the protocol."""

    def retire(self, why: str) -> None:
        """Close the stream for good, and fail all requests without an answer."""
        # First: nothing that comes or is lost while requests fail may be heard.
        self._is_live = False
        if self._transport is not None:
            # Not ``close``: that would first send what is in the buffers, to a bookie that may not
            # take it.
            self._transport.abort()
        self.give_up(why)

    @abstractmethod
    def give_up(self, why: str) -> None:
        """Fail all requests without an answer."""


StreamT = TypeVar("StreamT", bound=BookieStream)


@dataclass(frozen=True, slots=True)
class LinkServices:
    """What all links of a process share."""

    dialer: Dialer
    clock: Clock
    random: Random
    config: LedgerConfig
    # What the links know of the bookies' behaviour together.
    health: BookieHealth


class LinkBase(Generic[StreamT]):
    """The way to one bookie, over one stream after the other."""

    def __init__(self, bookie_id: str, services: LinkServices) -> None:
        self.bookie_id = bookie_id
        self._dialer = services.dialer
        self._clock = services.clock
        self._config = services.config
        self._health = services.health
        config = services.config
        self._backoff = Backoff(config.retry_first_s, config.retry_limit_s, services.random)
        self._connection: StreamT | None = None
        # When an attempt to connect failed last, by the clock.
        self._failed_at_s = -math.inf
        # The owner of all links is closing: no connection is made any more.
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent now."""
        return self._connection is not None

    @property
    def is_down(self) -> bool:
        """Whether the bookie could not be reached a moment ago: better ask another first."""
        return (
            self._connection is None
            and self._clock.monotonic() - self._failed_at_s < self._config.down_memory_s
        )

    @property
    def is_doubtful(self) -> bool:
        """Whether the bookie is down, or has failed or been slow a moment ago: ask it last."""
        return self.is_down or self._health.is_doubtful(self.bookie_id, self._clock.monotonic())

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Orders links by how soon their bookies probably answer; the last one is asked last.

        Of several doubtful ones, the one that gave a reason for doubt last comes last: one that
        hangs now would otherwise delay each read because another one failed a while ago.
        """
        doubted_at_s = self._health.doubted_at_s(self.bookie_id, self._clock.monotonic())
        # A link without a connection comes after one that is in doubt: it cannot be asked at all
        # before an attempt to connect.
        return self._connection is None, self.is_doubtful, doubted_at_s

    def note_failure(self) -> None:
        """The bookie answered with an error that is its own fault, or not in time."""
        if self._health.failed(self.bookie_id, self._clock.monotonic()):
            log.warning("bookie quarantined", extra={"bookie": self.bookie_id})

    def note_doubt(self) -> None:
        """The bookie is slow, or its copy of something is damaged."""
        self._health.doubt(self.bookie_id, self._clock.monotonic())

    async def _dial(self, factory: Callable[[], StreamT]) -> tuple[asyncio.Transport, StreamT]:
        """Make a connection, which is the link's from now on. Raises ``BookieUnavailable``."""
        try:
            transport, connection = await self._dialer.dial(self.bookie_id, factory)
        except BookieUnavailable:
            # Not a failure by ``note_failure``: a bookie that restarts is down for seconds, and
            # must not get into quarantine for half an hour.
            self._failed_at_s = self._clock.monotonic()
            raise
        # While the dialer waited the link may have been closed, and the stream may have ended
        # before it was ours, so that its end was not reported to us.
        if self._is_closed or transport.is_closing():
            connection.retire(CLOSING)
            self._failed_at_s = self._clock.monotonic()
            raise BookieUnavailable(self.bookie_id, "the connection broke at once")
        # Only after a connection that lasted until here: one that breaks at once is a failed
        # attempt.
        self._backoff.reset()
        self._connection = connection
        return transport, connection

    def close(self) -> None:
        """Give the connection up, for good."""
        self._is_closed = True
        if self._connection is not None:
            self._lose(self._connection, CLOSING)

    @abstractmethod
    def _lose(self, connection: BookieStream, why: str = "the connection broke") -> None:
        """Go on without ``connection``."""
