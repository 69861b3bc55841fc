"""One direction of a stream between two hosts: what is on its way, and when it arrives.

Bytes arrive in the order in which they were sent, in chunks that have nothing to do with how they
were written, late or not at all. When nothing gets through for long, the sender's connection
breaks. Delays, cuts and losses come from the network's random source.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Protocol

from geminga_runtime.disk import Chunk
from geminga_simulation.canary import CHANCES_PER_STRIKE
from geminga_simulation.conditions import NetworkConditions
from geminga_simulation.event_loop.loop import SimulatedLoop

if TYPE_CHECKING:
    from geminga_simulation.tcp.stream import Endpoint


class Wires(Protocol):
    """The network, as its streams see it: ``SimulatedNetwork``, where each is explained."""

    loop: SimulatedLoop
    random: Random
    conditions: NetworkConditions
    kernel: Context
    is_leaky: bool

    @property
    def window_bytes(self) -> int:
        """How much may be under way unread on one stream, each way."""
        ...

    def delay_s(self) -> float:
        """How long the next message takes."""
        ...

    def passes(self, sender: Endpoint) -> bool:
        """Whether what this end sends arrives."""
        ...

    def reset_from(self, end: Endpoint) -> None:
        """Tell the other end that this one is gone."""
        ...

    def forget(self, end: Endpoint) -> None:
        """This end is closed."""
        ...


class Segment:
    """Bytes written at one instant, on their way; ``chunks`` None: the end of the stream."""

    __slots__ = ("arrival_s", "chunks", "sent_s")

    def __init__(self, sent_s: float, arrival_s: float, chunks: list[Chunk] | None) -> None:
        self.sent_s = sent_s
        self.arrival_s = arrival_s
        self.chunks = chunks


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

    def __init__(self, network: Wires, sender: Endpoint, receiver: Endpoint) -> None:
        self._network = network
        self.sender = sender
        self.receiver = receiver
        self.segments: deque[Segment] = deque()
        # Sent and not yet given to the receiver's protocol.
        self.unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled_since_s: float | None = None
        self._label = f"{sender.host}:{sender.port}>{receiver.host}:{receiver.port}"

    def send(self, content: Chunk) -> None:
        """Put bytes on their way."""
        self.unread_bytes += len(content)
        now_s = self._network.loop.now_s
        segments = self.segments
        if segments:
            last = segments[-1]
            if last.sent_s == now_s and last.chunks is not None:
                last.chunks.append(content)  # one turn's writes leave together
                return
        self._enqueue(now_s, [content])

    def send_end(self) -> None:
        """Put the end of the stream on its way, behind all bytes."""
        self._enqueue(self._network.loop.now_s, None)

    def _enqueue(self, now_s: float, chunks: list[Chunk] | None) -> None:
        arrival_s = now_s + self._network.delay_s()
        if self.segments:
            arrival_s = max(arrival_s, self.segments[-1].arrival_s)
        self.segments.append(Segment(now_s, arrival_s, chunks))
        self.schedule()

    def schedule(self, not_before_s: float = 0.0) -> None:
        """See that the first segment is delivered when it is due, in the receiver's process."""
        if self._timer is None and self.segments and self._stalled_since_s is None:
            due_s = max(self.segments[0].arrival_s, not_before_s)
            receiver = self.receiver
            context = self._network.kernel if receiver.is_gone else receiver.context
            self._timer = self._network.loop.at(due_s, self._deliver, context=context)

    def truncate(self) -> None:
        """Lose what is under way, from a chance place on: a reset overtakes or discards it."""
        kept = self._network.random.randrange(len(self.segments) + 1)
        while len(self.segments) > kept:
            self.segments.pop()

    def reroute(self) -> None:
        """The receiver's process died: from now on its machine's kernel receives."""
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
            self._stall()
        elif receiver.is_gone:
            self._deliver_to_nobody()
        elif receiver.is_reading():
            self._deliver_to(receiver)

    def _deliver_to(self, receiver: Endpoint) -> None:
        network = self._network
        segments = self.segments
        now_s = network.loop.now_s
        conditions = network.conditions
        if self._waits_for_the_next(now_s):
            self.schedule(segments[1].arrival_s)
            return
        chunks: list[Chunk] = []
        while segments and segments[0].arrival_s <= now_s:
            arrived = segments[0].chunks
            if arrived is None:
                break
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
        self.unread_bytes -= len(content)
        network.loop.trace.note(self._label, content)
        self.schedule()
        if self.sender.backlog_bytes:
            self.sender.refill_later()
        if network.is_leaky and network.random.randrange(CHANCES_PER_STRIKE) == 0:
            return
        receiver.receive(bytes(content))

    def _waits_for_the_next(self, now_s: float) -> bool:
        """Whether the first segment arrives together with the second."""
        if len(self.segments) < 2:
            return False
        following = self.segments[1]
        if following.arrival_s <= now_s or following.chunks is None:
            return False
        return self._network.random.random() < self._network.conditions.merge_probability

    def _stall(self) -> None:
        """Nothing gets through: wait for the link, and in the end give up."""
        if self._stalled_since_s is None:
            network = self._network
            self._stalled_since_s = since_s = network.loop.now_s
            give_up_s = network.conditions.give_up_s
            network.loop.after(give_up_s, self._give_up, since_s, context=self.sender.context)

    def _give_up(self, since_s: float) -> None:
        if self._stalled_since_s == since_s:
            self.clear()
            self.sender.lose(TimeoutError(errno.ETIMEDOUT, "the peer does not answer"))

    def _deliver_to_nobody(self) -> None:
        """The receiver closed or died: its machine answers bytes, but not an end, with a reset."""
        carries_bytes = any(segment.chunks is not None for segment in self.segments)
        self.clear()
        if carries_bytes:
            self._network.reset_from(self.receiver)

    def clear(self) -> None:
        """Lose everything under way."""
        self.segments.clear()
        self.unread_bytes = 0
