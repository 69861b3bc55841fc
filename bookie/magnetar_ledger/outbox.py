"""What goes to one bookie at the end of this turn of the event loop: many frames, one write.

Whoever sends appends its bytes to ``chunks``, having called ``wake`` if the list was empty. While
there is no connection the bytes are thrown away, because their senders send anew when there is one
again; while the transport's buffer is full they are held here, up to a limit.

HOT: senders use ``chunks`` directly, which saves a call for each entry and bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Up to so many chunks are handed over as they are, more are joined first. With uvloop, an entry of
# 100 kB costs 24 us joined and 20 us as it is; one of 100 bytes, among a hundred, 134 and 204 ns.
LOOSE_CHUNKS_MAX = 32


class Outbox:
    """The outgoing bytes of one bookie, over all its successive connections.

    ``on_overflow`` is called when more than ``unsent_bytes_max`` wait for a full transport.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_is_paused",
        "_loop",
        "_on_overflow",
        "_transport",
        "_unsent_bytes_max",
        "chunks",
    )

    def __init__(self, *, unsent_bytes_max: int, on_overflow: Callable[[], None]) -> None:
        self.chunks: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._unsent_bytes_max = unsent_bytes_max
        self._on_overflow = on_overflow

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the transport to take more."""
        return self._held_bytes

    def wake(self) -> None:
        """Have ``chunks`` sent at the end of this loop turn."""
        self._loop.call_soon(self._flush)

    def attach(self, transport: asyncio.Transport) -> None:
        """Send through ``transport`` from now on; nothing from before goes there."""
        self._forget()
        self._transport = transport

    def detach(self) -> None:
        """The connection is gone; throw away what is sent until there is another."""
        self._forget()
        self._transport = None

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport takes bytes again."""
        self._is_paused = False
        held, self._held, self._held_bytes = self._held, [], 0
        if held and self._transport is not None:
            self._transport.write(b"".join(held))

    def _forget(self) -> None:
        self.chunks.clear()
        self._held.clear()
        self._held_bytes = 0
        self._is_paused = False

    def _flush(self) -> None:
        chunks = self.chunks
        transport = self._transport
        if transport is None or not chunks:
            chunks.clear()
        elif self._is_paused:
            self._hold(chunks)
        elif len(chunks) <= LOOSE_CHUNKS_MAX:
            transport.writelines(chunks)
            chunks.clear()
        else:
            transport.write(b"".join(chunks))
            chunks.clear()

    def _hold(self, chunks: list[bytes]) -> None:
        self._held += chunks
        self._held_bytes += sum(map(len, chunks))
        chunks.clear()
        if self._held_bytes > self._unsent_bytes_max:
            self._on_overflow()
