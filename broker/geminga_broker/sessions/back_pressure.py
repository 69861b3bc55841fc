"""When a client's socket is not read: the broker's only way to slow a client down.

Each reason has its bound: bytes published and not durable yet (of this connection, and of all),
commands in progress, a client that does not take its answers, and rate limits, which say themselves
for how long. Reading goes on when half of the bytes are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_broker.sessions.config import SessionConfig
from geminga_runtime.clock import Clock

# A client that publishes too fast is not read; so often is it looked whether it still must not.
THROTTLE_REVIEW_S = 1.0


@dataclass(slots=True)
class PublishBuffer:
    """What all sessions of a broker share: ``pending_bytes`` is what their producers have sent that
    is not durable yet, ``held_back`` are the sessions that are not read. The dict keeps the order
    of coming: a set's would differ from run to run of a simulation."""

    pending_bytes: int = 0
    held_back: dict[BackPressure, None] = field(default_factory=dict)


class BackPressure:
    """Decides whether one client is read, and pauses and resumes its transport."""

    def __init__(
        self,
        transport: asyncio.Transport,
        buffer: PublishBuffer,
        clock: Clock,
        config: SessionConfig,
    ) -> None:
        self.is_reading_paused = False
        self.is_client_slow = False
        self._transport = transport
        self._buffer = buffer
        self._clock = clock
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._pending_bytes = 0
        self._commands = 0
        # The rate limits that hold the client back: each says for how many seconds from a time on.
        self._throttles: dict[Callable[[float], float], None] = {}
        self._unthrottle: asyncio.TimerHandle | None = None

    def published(self, size_bytes: int) -> None:
        """``size_bytes`` were taken from this client and are not durable yet. The connection asks
        for a ``review`` when it has taken the whole read."""
        self._pending_bytes += size_bytes
        self._buffer.pending_bytes += size_bytes

    def confirmed(self, size_bytes: int) -> None:
        """``size_bytes`` of those are durable now (or given up)."""
        self._pending_bytes -= size_bytes
        buffer = self._buffer
        buffer.pending_bytes -= size_bytes
        if buffer.held_back and buffer.pending_bytes <= self._config.publish_buffer_bytes_max // 2:
            for held_back in list(buffer.held_back):
                held_back.review()

    def command_started(self) -> None:
        """One more command is in progress; reviewed as in ``published``."""
        self._commands += 1

    def command_finished(self) -> None:
        """One command less is in progress."""
        self._commands -= 1
        if self.is_reading_paused:
            self.review()

    def slow(self, *, is_slow: bool) -> None:
        """The client does not take what it is sent, or takes it again."""
        self.is_client_slow = is_slow
        self.review()

    def throttle(self, wait_s: Callable[[float], float]) -> None:
        """Do not read the client for as long as ``wait_s`` says at a time of the monotonic clock,
        in seconds; it is asked again when that is over."""
        self._throttles[wait_s] = None
        if self._unthrottle is None:
            self._review_throttles()

    def _review_throttles(self) -> None:
        """Ask those who hold the client back; a limit may have been lifted meanwhile."""
        now_s = self._clock.monotonic()
        waits_s = {each: each(now_s) for each in self._throttles}
        self._throttles = {each: None for each, wait_s in waits_s.items() if wait_s > 0}
        self._unthrottle = None
        if self._throttles and not self._is_closed:
            delay_s = min(max(waits_s.values()), THROTTLE_REVIEW_S)
            self._unthrottle = self._loop.call_later(delay_s, self._review_throttles)
        self.review()

    def review(self) -> None:
        """Stop reading the socket while too much is under way, go on when half of it is done."""
        if self._is_closed:
            return
        buffer, config = self._buffer, self._config
        if not self.is_reading_paused:
            if (
                self.is_client_slow
                or self._throttles
                or self._pending_bytes > config.pending_bytes_max
                or buffer.pending_bytes > config.publish_buffer_bytes_max
                or self._commands > config.commands_in_progress_max
            ):
                self.is_reading_paused = True
                buffer.held_back[self] = None
                self._transport.pause_reading()
        elif (
            not self.is_client_slow
            and not self._throttles
            and self._pending_bytes <= config.pending_bytes_max // 2
            and buffer.pending_bytes <= config.publish_buffer_bytes_max // 2
            and self._commands <= config.commands_in_progress_max
        ):
            self.is_reading_paused = False
            buffer.held_back.pop(self, None)
            self._transport.resume_reading()

    def close(self) -> None:
        """Nothing more is read. What is pending is still counted off when it is confirmed."""
        self._is_closed = True
        self._buffer.held_back.pop(self, None)
        if self._unthrottle is not None:
            self._unthrottle.cancel()
