"""What is sent to one bookie: many frames, one write.

Reads leave at the end of this turn of the event loop. Entries do too while the bookie owes no
answer; otherwise they gather until its next answer comes, for a millisecond at most: the bookie is
busy with a sync, and what it is sent meanwhile waits there for the next one anyway. This is Nagle's
idea, and what it saves is wake-ups: with the official client at full speed and 1 KiB messages,
broker and bookie need 3-4 us less CPU a message (`make bench`), while one send at a time never
waits.

Senders append their bytes to ``chunks``, having called ``wake`` if the list was empty. While there
is no connection the bytes are thrown away, because their senders send anew when there is one again;
while the transport's buffer is full they are held here, up to a limit.

HOT: senders use ``chunks`` directly, which saves a call for each entry and bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

# Up to so many chunks are handed over as they are, more are joined first. With uvloop, an entry of
# 100 kB costs 24 us joined and 20 us as it is; one of 100 bytes, among a hundred, 134 and 204 ns.
LOOSE_CHUNKS_MAX = 32
# Gathered entries leave at the latest after so long, so that a slow sync does not hold them all.
GATHER_S = 0.001
# ... or when there are so many chunks (two an entry).
GATHER_CHUNKS_MAX = 512


# How bytes go on from here:
#
#     chunks --flush--> transport's buffer --> kernel
#        |                   ^
#        +--- flush while    | resume
#             paused --> _held
#
# Either ``_held`` is empty or ``_is_paused``: what was sent first leaves first.
@dataclass(slots=True, eq=False, kw_only=True)
class Outbox:
    """The outgoing bytes of one bookie, over all its successive connections.

    ``on_overflow`` is called when more than ``unsent_bytes_max`` wait for a full transport.
    """

    unsent_bytes_max: int
    on_overflow: Callable[[], None]
    # What leaves with the next flush, in order.
    chunks: list[bytes] = field(init=False, default_factory=list)
    # What waits for the transport to take more, and its size.
    _held: list[bytes] = field(init=False, default_factory=list)
    held_bytes: int = field(init=False, default=0)
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _transport: asyncio.Transport | None = field(init=False, default=None)
    # The transport's buffer is full.
    _is_paused: bool = field(init=False, default=False)
    # Entries were sent and none of them is answered yet.
    _is_answer_due: bool = field(init=False, default=False)
    # Ends the gathering of entries where no answer does.
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)

    def wake(self) -> None:
        """Have ``chunks`` sent at the end of this loop turn."""
        self._loop.call_soon(self.flush)

    def wake_for_entries(self) -> None:
        """Have ``chunks`` sent soon: with the next answer where one is due, else like ``wake``."""
        # Nothing would end the gathering, and the bookie is idle: the entry leaves with this turn.
        if not self._is_answer_due:
            self._is_answer_due = True
            self._loop.call_soon(self.flush)
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self.flush)

    def answered(self) -> None:
        """Answers to entries came: send what has gathered."""
        # An answer stays due, now to what leaves here.
        if self.chunks:
            self.flush()
        else:
            self._is_answer_due = False

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
        # Before writing: the transport may be full again within ``write``, and call ``pause``.
        held, self._held, self.held_bytes = self._held, [], 0
        if held and self._transport is not None:
            self._transport.write(b"".join(held))

    def flush(self) -> None:
        """Send at once what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        chunks = self.chunks
        transport = self._transport
        # The list is emptied in place, never replaced: senders keep it in a local variable.
        if transport is None or not chunks:
            chunks.clear()
        elif self._is_paused:
            self._held += chunks
            self.held_bytes += sum(map(len, chunks))
            # Before the call: it may detach this outbox.
            chunks.clear()
            if self.held_bytes > self.unsent_bytes_max:
                self.on_overflow()
        elif len(chunks) <= LOOSE_CHUNKS_MAX:
            transport.writelines(chunks)
            chunks.clear()
        else:
            transport.write(b"".join(chunks))
            chunks.clear()

    def _forget(self) -> None:
        """Throw away what is not sent: those who sent it send it anew over the next connection."""
        self.chunks.clear()
        self._held.clear()
        self.held_bytes = 0
        self._is_paused = False
        self._is_answer_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
