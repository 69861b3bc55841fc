"""What is written to one client: frames are collected and written once before the loop turns.

All that the commands of one read and the topics answer leaves with one write. Deliveries append to
``frames`` themselves and report afterwards how many bytes that was (``delivered``).
"""

from __future__ import annotations

import asyncio

from geminga_broker.sessions.config import SessionConfig

# Frames that are larger on average go to the transport one by one: joining them would copy them.
# uvloop passes a list to the kernel with one call and without copying it; asyncio joins it.
JOINED_BYTES_MAX = 4096


class Outbox:
    """The writing side of a connection."""

    def __init__(self, transport: asyncio.Transport, config: SessionConfig) -> None:
        # One list for the connection's whole life: dispatchers hold a reference to it.
        self.frames: list[bytes] = []
        # No frame is written any more; those that still come are dropped.
        self.is_closed = False
        # How many written bytes the kernel has not taken yet, as the client does not read.
        self.unsent_bytes = transport.get_write_buffer_size
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        # Of messages only: receipts and answers are small.
        self._delivered_bytes = 0  # of what is in ``frames``
        self._is_flush_scheduled = False
        self._unflushed_bytes_max = config.unflushed_bytes_max
        transport.set_write_buffer_limits(high=config.write_buffer_bytes_high)

    def send(self, frame: bytes) -> None:
        """Queue ``frame``; it is written before the loop turns."""
        self.frames.append(frame)
        # One callback for all frames of this turn of the loop. It runs behind the callbacks that
        # are ready now. What these put in, such as receipts after a read from a bookie, leaves with
        # the same write.
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def delivered(self, size_bytes: int) -> None:
        """Count ``size_bytes`` of messages that were put in ``frames``; write at once when many.

        A large backlog that is read from the cache would otherwise collect here, where it does not
        count against the high mark of the transport.
        """
        self._delivered_bytes += size_bytes
        # Writing may call ``pause_writing`` at once, so that the dispatcher which reported this
        # stops.
        if self._delivered_bytes > self._unflushed_bytes_max:
            self._write_out()
        elif not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what is queued, then close the connection; later frames are dropped."""
        # Before the flag: ``_write_out`` drops what comes after it.
        self._write_out()
        self.is_closed = True
        self._transport.close()

    def abort(self) -> None:
        """End the connection without waiting for the client to take what was written."""
        self.is_closed = True
        self._transport.abort()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        self._write_out()

    def _write_out(self) -> None:
        frames = self.frames
        delivered_bytes, self._delivered_bytes = self._delivered_bytes, 0
        if frames and not self.is_closed:
            if delivered_bytes > len(frames) * JOINED_BYTES_MAX:
                self._transport.writelines(frames)
            else:
                self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        # In place, also where they are dropped: others hold this list.
        frames.clear()
