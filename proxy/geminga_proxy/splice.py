"""Carries bytes between a client and its broker, both ways, without looking at them.

Nothing is kept but what the slower side has not taken: above ``BUFFER_BYTES_MAX`` the other side is
not read until it has. Ends close together, after what was written has left. Client and broker keep
each other awake with PING and PONG; a broker side that moves nothing for the read timeout is dead,
or its client takes nothing, and either way the splice ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

# What one side may be behind with, beside one read of the other. A tenth of a second of 20 Mbit/s;
# more would make memory, of thousands of slow readers, of what the kernel's buffers do as well.
BUFFER_BYTES_MAX = 256 * 1024
# A side that is closed gets so long to take what was written to it.
LINGER_S = 10.0


@dataclass(slots=True)
class SpliceCounts:
    """What all splices carried, both ways: pieces and bytes."""

    pieces: int = 0
    carried_bytes: int = 0


class SpliceEnd(asyncio.Protocol):
    """One side of a splice: what it reads is written to the other side."""

    __slots__ = ("_counts", "_splice", "is_lost", "other", "pieces", "transport")

    other: asyncio.Transport

    def __init__(self, splice: Splice, transport: asyncio.Transport, counts: SpliceCounts) -> None:
        self._splice = splice
        self._counts = counts
        self.transport = transport
        self.pieces = 0
        self.is_lost = False
        transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Hand on what came; asyncio takes it to the kernel at once where it can."""
        self.pieces += 1
        counts = self._counts
        counts.pieces += 1
        counts.carried_bytes += len(data)
        self.other.write(data)

    def pause_writing(self) -> None:
        """This side is behind: the other one is not read."""
        if not self.other.is_closing():
            self.other.pause_reading()

    def resume_writing(self) -> None:
        """This side caught up."""
        if not self.other.is_closing():
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """This side is gone, and with it the splice."""
        del exc
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
        self._is_ending = False
        self._broker_gone = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self.pieces_seen = 0
        self.silent_s = 0.0

    def begin(self, to_broker: bytes, to_client: bytes) -> None:
        """Take both sides over. The arguments are what was read before, and not handed on."""
        self._splices.open[self] = None
        for end, early in ((self.broker, to_broker), (self.client, to_client)):
            end.transport.set_protocol(end)
            if early:
                end.transport.write(early)
        for end in (self.broker, self.client):
            # A side that is behind already has paused the other one.
            if not end.transport.is_closing() and not _is_behind(end.other):
                end.transport.resume_reading()

    async def leave_broker(self) -> None:
        """Tell the broker that nothing more comes, and return when it has closed its side, which it
        does when it has let go of the client's producers and consumers."""
        if not self.broker.is_lost and not self.broker.transport.is_closing():
            self.client.transport.pause_reading()
            self.broker.transport.write_eof()
        await self._broker_gone.wait()

    def end(self) -> None:
        """Close both sides, which take what was written to them first; the broker's first, so that
        it lets go of the client's producers and consumers before the client comes back."""
        if self.broker.is_lost:
            self._broker_gone.set()
        if not self._is_ending:
            self._is_ending = True
            # asyncio writes what is left before it closes, and reads no more.
            self.broker.transport.close()
            self.client.transport.close()
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        if self.broker.is_lost and self.client.is_lost and self in self._splices.open:
            assert self._linger is not None
            self._linger.cancel()
            del self._splices.open[self]
            self._on_end()

    def abort(self) -> None:
        """Cut both sides off, whatever they have not taken."""
        self.broker.transport.abort()
        self.client.transport.abort()


class Splices:
    """All open splices of a proxy, in the order of their beginning."""

    def __init__(self, read_timeout_s: float) -> None:
        self.open: dict[Splice, None] = {}
        self.counts = SpliceCounts()
        self._read_timeout_s = read_timeout_s

    def review(self, passed_s: float) -> None:
        """End the splices whose brokers' sides have moved nothing for the read timeout; called
        every ``passed_s`` seconds, instead of a timer for each."""
        for splice in list(self.open):
            pieces = splice.broker.pieces
            splice.silent_s = splice.silent_s + passed_s if pieces == splice.pieces_seen else 0.0
            splice.pieces_seen = pieces
            if splice.silent_s >= self._read_timeout_s:
                log.info("splice cut off: nothing came from the broker, or went to the client")
                splice.abort()


def _is_behind(transport: asyncio.Transport) -> bool:
    return transport.get_write_buffer_size() > BUFFER_BYTES_MAX
