"""When a client's socket is not read: the broker's only way to slow a client down.

Reading stops while one of these is exceeded: bytes published and not yet durable (of this
connection, and of all connections), commands in progress, answers that the client does not take,
and rate limits, which say themselves for how long. It goes on when half of the bytes are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_broker.sessions.config import SessionConfig
from geminga_runtime.clock import Clock

# The longest time until a rate limit is checked again: a policy may lift it before its time.
THROTTLE_REVIEW_S = 1.0


@dataclass(slots=True)
class PublishBuffer:
    """What all sessions of a broker share of their back-pressure."""

    # What producers have sent that is not durable yet. The sum of ``_pending_bytes`` of all
    # sessions, those that are closed included.
    pending_bytes: int = 0
    # The connections that are not read. A dict, as the iteration order of a set would differ from
    # run to run of a simulation.
    paused: dict[BackPressure, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class BackPressure:
    """Decides whether one client is read, and pauses and resumes its transport."""

    transport: asyncio.Transport
    buffer: PublishBuffer
    clock: Clock
    config: SessionConfig
    is_reading_paused: bool = False
    # The transport's write buffer is above its high mark: the client does not take what it is sent.
    is_client_slow: bool = False
    _is_closed: bool = field(default=False, init=False)
    # Commands in progress. ``Requests`` counts them, and calls ``review`` when one has ended.
    commands: int = field(default=0, init=False)
    # Of this connection: bytes published and not yet durable.
    _pending_bytes: int = field(default=0, init=False)
    # The rate limits that hold the client back. Each returns, for a time of the monotonic clock,
    # how many seconds it goes on to do so. By the bound method of the rate: one that is exceeded
    # again while it holds the client is there once.
    _throttles: dict[Callable[[float], float], None] = field(default_factory=dict, init=False)
    _unthrottle: asyncio.TimerHandle | None = field(default=None, init=False)

    def published(self, size_bytes: int) -> None:
        """Count ``size_bytes`` that were taken from this client and are not durable yet.

        HOT: called with every run of messages. It does not pause reading itself: the connection
        calls ``review`` once it has handled the whole read.
        """
        self._pending_bytes += size_bytes
        self.buffer.pending_bytes += size_bytes

    def confirmed(self, size_bytes: int) -> None:
        """Count off ``size_bytes`` that are durable now, or given up."""
        self._pending_bytes -= size_bytes
        buffer = self.buffer
        buffer.pending_bytes -= size_bytes
        # Reading goes on once the common buffer is half empty, and not before that. All paused
        # connections are reviewed then: those without pending bytes get no other wake-up. A copy,
        # because ``review`` takes connections out. Most calls find the mapping empty.
        if buffer.paused and buffer.pending_bytes <= self.config.publish_buffer_bytes_max // 2:
            for paused in list(buffer.paused):
                paused.review()

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """Do not read the client for as long as ``wait_s`` says.

        ``wait_s`` takes a time of the monotonic clock and returns seconds; it is called again when
        these are over, and at least every ``THROTTLE_REVIEW_S``.
        """
        self._throttles[wait_s] = None
        # A timer that runs asks all of them, the new one too.
        if self._unthrottle is None:
            self._review_throttles()

    def _review_throttles(self) -> None:
        """Drop the rate limits that are over; ask the others again later."""
        now_s = self.clock.monotonic()
        waits_s = {each: each(now_s) for each in self._throttles}
        self._throttles = {each: None for each, wait_s in waits_s.items() if wait_s > 0}
        self._unthrottle = None
        if self._throttles and not self._is_closed:
            # The longest: reading goes on when no limit holds the client any more.
            delay_s = min(max(waits_s.values()), THROTTLE_REVIEW_S)
            loop = asyncio.get_running_loop()
            self._unthrottle = loop.call_later(delay_s, self._review_throttles)
        self.review()

    def review(self) -> None:
        """Stop reading the socket where a bound is exceeded, and go on where none is any more.

        Bytes have to fall to half of their bound before reading goes on: without that distance a
        fast producer would pause and resume with every message.
        """
        if self._is_closed:
            return
        buffer, config = self.buffer, self.config
        if not self.is_reading_paused:
            if (
                self.is_client_slow
                or self._throttles
                or self._pending_bytes > config.pending_bytes_max
                or buffer.pending_bytes > config.publish_buffer_bytes_max
                or self.commands > config.commands_in_progress_max
            ):
                self.is_reading_paused = True
                # The kernel's buffers fill up from here on, then those of the client, whose
                # producer then waits in its own send call.
                buffer.paused[self] = None
                self.transport.pause_reading()
        # The same conditions with half of the bytes. ``commands`` needs no distance: each takes a
        # task, and a round trip of the client.
        elif (
            not self.is_client_slow
            and not self._throttles
            and self._pending_bytes <= config.pending_bytes_max // 2
            and buffer.pending_bytes <= config.publish_buffer_bytes_max // 2
            and self.commands <= config.commands_in_progress_max
        ):
            self.is_reading_paused = False
            buffer.paused.pop(self, None)
            self.transport.resume_reading()

    def close(self) -> None:
        """Read nothing more. Pending bytes are still counted off when they are confirmed."""
        self._is_closed = True
        self.buffer.paused.pop(self, None)
        if self._unthrottle is not None:
            self._unthrottle.cancel()
