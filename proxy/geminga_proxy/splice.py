"""Carries bytes between a client and its broker, both ways, without looking at them.

What one side has not taken yet waits in its transport's buffer; above ``BUFFER_BYTES_MAX`` the
other side is not read until it has. The two sides end together, after what was written has left.
Client and broker keep the connection alive with PING and PONG. Where nothing moves on the broker's
side for the read timeout, the broker is dead or the client takes nothing, and the splice ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

# What one side may be behind with, besides one read of the other. A tenth of a second of 20 Mbit/s.
# More would hold in our memory, for thousands of slow readers, what the kernel's buffers can hold.
BUFFER_BYTES_MAX = 256 * 1024
# A side that is closed gets so long to take what was written to it.
LINGER_S = 10.0
# How often silent splices are looked for: a tenth of the default read timeout, so that they end at
# most that much late.
REVIEW_S = 7.5


@dataclass(slots=True)
class SpliceCounts:
    """What all splices carried, both ways: pieces and bytes."""

    pieces: int = 0
    carried_bytes: int = 0


class SpliceEnd(asyncio.Protocol):
    """One side of a splice: what it reads is written to the other side."""

    __slots__ = ("_counts", "_splice", "is_lost", "other", "pieces", "transport")

    # Where what is read here goes. Set once, by ``Splice``, before any callback runs.
    other: asyncio.Transport

    def __init__(self, splice: Splice, transport: asyncio.Transport, counts: SpliceCounts) -> None:
        self._splice = splice
        self._counts = counts
        self.transport = transport
        # Reads so far, by which ``Splices.review`` sees whether anything moves. Never reset: a
        # review compares it with what it saw before.
        self.pieces = 0
        self.is_lost = False
        # By these ``pause_writing`` is called: a slow reader slows its sender down, and takes no
        # memory. asyncio's own limits are 64 KiB and a quarter of that; ``low`` follows ``high`` as
        # a quarter.
        transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Forward what came. HOT: asyncio gives it to the kernel at once where it can."""
        self.pieces += 1
        counts = self._counts
        counts.pieces += 1
        counts.carried_bytes += len(data)
        self.other.write(data)

    def pause_writing(self) -> None:
        """Stop reading the other side: this one is behind."""
        if not self.other.is_closing():
            self.other.pause_reading()

    def resume_writing(self) -> None:
        """Read the other side again: this one caught up."""
        if not self.other.is_closing():
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """This side is gone, and with it the splice."""
        del exc
        # Before ``end``, which looks at it for both sides.
        self.is_lost = True
        self._splice.end()


class Splice:
    """A client and its broker, joined. ``on_end`` is called once, when both sides are gone."""

    def __init__(
        self,
        client: asyncio.Transport,
        broker: asyncio.Transport,
        splices: Splices,
        on_end: Callable[[], None],
    ) -> None:
        self.client = SpliceEnd(self, client, splices.counts)
        self.broker = SpliceEnd(self, broker, splices.counts)
        self.client.other, self.broker.other = broker, client
        self._splices = splices
        self._on_end = on_end
        # Set by the first side that is lost, or by the end of the proxy.
        self._is_ending = False
        # Set when the broker has closed its side.
        self._broker_gone = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        # What ``Splices.review`` saw last of the broker's side, and for how long nothing moved. In
        # units of ``REVIEW_S``: a splice is reviewed by one timer for all.
        self.pieces_seen = 0
        self.silent_s = 0.0

    def begin(self, to_broker: bytes, to_client: bytes) -> None:
        """Take over both transports. The arguments were read before, and not forwarded yet."""
        # From now on ``review`` and the end of the proxy find it. Before the first byte moves: a
        # side that is lost at once takes the splice out again.
        self._splices.open[self] = None
        # Both sides have their protocol before either is read: bytes go nowhere else from here on.
        for end, early in ((self.broker, to_broker), (self.client, to_client)):
            # ``set_protocol`` makes ``connection_lost`` come here, too, and no longer to the
            # connection.
            end.transport.set_protocol(end)
            # In order: these bytes were read before anything that the transports read from now on.
            if early:
                end.transport.write(early)
        for end in (self.broker, self.client):
            # A side that is behind already has paused the other one.
            is_behind = end.other.get_write_buffer_size() > BUFFER_BYTES_MAX
            if not end.transport.is_closing() and not is_behind:
                end.transport.resume_reading()

    async def leave_broker(self) -> None:
        """Send the broker the end of the stream; return when it has closed its side.

        It does that after it has released the client's producers and consumers.
        """
        if not self.broker.is_lost and not self.broker.transport.is_closing():
            # After the end of the stream nothing more can be written to the broker.
            self.client.transport.pause_reading()
            # Half a close: what the broker still sends can be read, and is the client's.
            self.broker.transport.write_eof()
        # ``end`` of the broker's loss sets it; the caller bounds the wait.
        await self._broker_gone.wait()

    def end(self) -> None:
        """Close both sides, after what was written to them has left.

        The broker's first, so that it releases the client's producers and consumers before the
        client comes back.
        """
        # Each time: ``leave_broker`` may wait although the end began on the client's side.
        if self.broker.is_lost:
            self._broker_gone.set()
        if not self._is_ending:
            self._is_ending = True
            # asyncio writes what is left before it closes, and reads no more.
            self.broker.transport.close()
            self.client.transport.close()
            # ``close`` waits for a peer that takes nothing; ``LINGER_S`` bounds that for both.
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        # Called by each side that is lost; the second call is the end.
        if self.broker.is_lost and self.client.is_lost and self in self._splices.open:
            assert self._linger is not None
            self._linger.cancel()
            # Exactly once: the second loss finds both flags set, and no further one comes.
            del self._splices.open[self]
            self._on_end()

    def abort(self) -> None:
        """Cut off both sides, whatever they have not taken."""
        self.broker.transport.abort()
        self.client.transport.abort()


@dataclass(slots=True, eq=False)
class Splices:
    """All open splices of a proxy."""

    # A splice on whose broker's side nothing moves for so long is cut off.
    read_timeout_s: float
    # In the order in which they began. Each puts itself in, and takes itself out.
    open: dict[Splice, None] = field(default_factory=dict["Splice", None])
    counts: SpliceCounts = field(default_factory=SpliceCounts)

    async def review(self) -> None:
        """End the splices on whose brokers' sides nothing has moved for the read timeout.

        Called every ``REVIEW_S`` seconds: one timer for all splices, not one for each.
        """
        for splice in list(self.open):
            pieces = splice.broker.pieces
            # A splice that has just begun may be counted a whole period as silent: it ends up to
            # ``REVIEW_S`` early, or late.
            splice.silent_s = splice.silent_s + REVIEW_S if pieces == splice.pieces_seen else 0.0
            # Any piece from the broker counts, a PING as well.
            splice.pieces_seen = pieces
            # ``abort``, not ``end``: the peer that is silent would not take what is left.
            if splice.silent_s >= self.read_timeout_s:
                log.info("splice cut off: nothing came from the broker, or went to the client")
                splice.abort()
