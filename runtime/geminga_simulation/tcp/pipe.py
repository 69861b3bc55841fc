"""One direction of a stream between two hosts: what is on its way, and when it arrives.

Bytes arrive in the order in which they were sent, in chunks that have nothing to do with how they
were written, late or not at all. When nothing gets through for long, the sender's connection
breaks. Delays, cuts and losses come from the network's random source.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga_runtime.disk import Chunk
from geminga_simulation.canary import CHANCES_PER_STRIKE

if TYPE_CHECKING:
    from geminga_simulation.tcp.network import SimulatedNetwork
    from geminga_simulation.tcp.stream import Endpoint


@dataclass(slots=True, eq=False)
class Segment:
    """Bytes written at one instant, on their way; ``chunks`` None: the end of the stream."""

    sent_s: float
    arrival_s: float
    chunks: list[Chunk] | None


# The life of a byte:
#
#     write ─▶ [backlog, if the window is full] ─▶ segment ─▶ arrives ─▶ data_received
#              └ backlog_bytes                    └─ unread_bytes ─┘
#
# A link that lets nothing through leaves the segments where they are, without a timer:
# ``resume`` sets one when the link works again, ``give_up`` clears them when that takes too long.
class Pipe:
    """One direction of a stream: segments under way, and the timer of the next arrival."""

    __slots__ = (
        "_label",
        "_network",
        "_stalled_since_s",
        "_timer",
        "receiver",
        "segments",
        "sender",
        "unread_bytes",
    )

    def __init__(self, network: SimulatedNetwork, sender: Endpoint, receiver: Endpoint) -> None:
        self._network = network
        self.sender = sender
        self.receiver = receiver
        # Arrival times never fall along the queue: streams keep their order.
        self.segments: deque[Segment] = deque()
        # Sent and not yet given to the receiver's protocol: what fills the sender's window.
        self.unread_bytes = 0
        # At most one delivery is scheduled; it schedules the next one.
        self._timer: asyncio.TimerHandle | None = None
        # Since when the link has let nothing through; None while it works.
        self._stalled_since_s: float | None = None
        self._label = f"{sender.host}:{sender.port}>{receiver.host}:{receiver.port}"

    def send(self, content: Chunk | None) -> None:
        """Put bytes on their way; None: the end of the stream, behind all bytes."""
        now_s = self._network.loop.now_s
        segments = self.segments
        chunks = None
        if content is not None:
            self.unread_bytes += len(content)
            if segments:
                # As a real sender's buffer: what one turn writes leaves in one packet, and arrives
                # at once.
                last = segments[-1]
                if last.sent_s == now_s and last.chunks is not None:
                    last.chunks.append(content)  # one turn's writes leave together
                    return
            chunks = [content]
        # Late chunks hold up all behind them, as a lost packet does in TCP.
        arrival_s = now_s + self._network.delay_s()
        if segments:
            arrival_s = max(arrival_s, segments[-1].arrival_s)
        segments.append(Segment(now_s, arrival_s, chunks))
        self.schedule()

    def schedule(self, not_before_s: float = 0.0) -> None:
        """See that the first segment is delivered when it is due, in the receiver's process."""
        # Not while the link is stalled: ``resume`` starts the timer.
        if self._timer is None and self.segments and self._stalled_since_s is None:
            due_s = max(self.segments[0].arrival_s, not_before_s)
            receiver = self.receiver
            context = self._network.kernel if receiver.is_gone else receiver.context
            self._timer = self._network.loop.at(due_s, self._deliver, context=context)

    def truncate(self) -> None:
        """Lose what is under way, from a chance place on: a reset overtakes or discards it."""
        # Also where there is nothing to lose: the draw is part of every reset.
        kept = self._network.random.randrange(len(self.segments) + 1)
        while len(self.segments) > kept:
            self.segments.pop()

    def clear(self) -> None:
        """Lose everything under way."""
        self.segments.clear()
        self.unread_bytes = 0

    def reroute(self) -> None:
        """The receiver's process died: from now on its machine's kernel receives."""
        # The timer runs in the dead process, where it would never fire.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.schedule()

    def resume(self, delay_s: float) -> None:
        """The link works again: the retransmission gets through."""
        if self._stalled_since_s is not None:
            self._stalled_since_s = None
            self.schedule(self._network.loop.now_s + delay_s)

    def _deliver(self) -> None:
        self._timer = None
        network = self._network
        receiver = self.receiver
        if not self.segments:
            return
        if not network.passes(self.sender):
            # Wait until the link works again (``resume``), and give up when that takes too long.
            if self._stalled_since_s is None:
                self._stalled_since_s = since_s = network.loop.now_s

                def give_up() -> None:
                    # Only if the link has not worked once since this timer was set.
                    if self._stalled_since_s == since_s:
                        self.clear()
                        self.sender.lose(TimeoutError(errno.ETIMEDOUT, "the peer does not answer"))

                give_up_s = network.conditions.give_up_s
                network.loop.after(give_up_s, give_up, context=self.sender.context)
        elif receiver.is_gone:
            # The receiver closed or died: its machine answers bytes, but not an end, with a reset.
            # As Linux: data for a closed socket gets a reset, a mere FIN does not.
            carries_bytes = any(segment.chunks is not None for segment in self.segments)
            self.clear()
            if carries_bytes:
                network.reset_from(receiver)
        elif receiver.is_reading():
            self._deliver_to(receiver)
        # Else nothing is scheduled: the receiver does so when it reads again.

    def _deliver_to(self, receiver: Endpoint) -> None:
        network = self._network
        segments = self.segments
        now_s = network.loop.now_s
        conditions = network.conditions
        # By chance the first segment arrives together with the second, when that is due.
        if (
            len(segments) >= 2
            and segments[1].arrival_s > now_s
            and segments[1].chunks is not None
            and network.random.random() < conditions.merge_probability
        ):
            # Nothing is delivered now; both are due then, and leave the queue together.
            self.schedule(segments[1].arrival_s)
            return
        chunks: list[Chunk] = []
        while segments and segments[0].arrival_s <= now_s:
            arrived = segments[0].chunks
            # All that has arrived by now becomes one read of the socket.
            if arrived is None:
                break  # the end is delivered alone, with its own timer
            chunks += arrived
            segments.popleft()
        if not chunks:
            segments.clear()
            receiver.receive_end()
            return
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if len(content) > 1 and network.random.random() < conditions.cut_probability:
            cut = network.random.randrange(1, len(content))
            segments.appendleft(Segment(now_s, now_s + network.delay_s(), [content[cut:]]))
            content = content[:cut]
        # All of the pipe's state is settled before the protocol is called, which may write, pause
        # reading or close.
        self.unread_bytes -= len(content)
        network.loop.trace.note(self._label, content)
        self.schedule()
        if self.sender.backlog_bytes:
            self.sender.refill_later()
        # The canary: these bytes were taken off the pipe, and reach no protocol.
        if network.is_leaky and network.random.randrange(CHANCES_PER_STRIKE) == 0:
            return
        receiver.receive(bytes(content))
