"""Messages that come in chunks: pieces of a large one, each stored as an entry of its own.

Decides what is whole and what has waited too long; acknowledges nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from geminga._channels.pending.acks import Position
from geminga.errors import UnreadableMessage
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_runtime.clock import Clock

# What all chunks of a message may add up to: its producer says how much that will be, and
# producers make messages of a few megabytes.
CHUNKED_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """All chunks of a message: their bodies together, and the entries before the last."""

    body: bytes
    earlier: tuple[Position, ...]


@dataclass(slots=True, eq=False)
class _Incomplete:
    expires_s: float
    chunks: int
    bodies: list[bytes] = field(default_factory=list[bytes])
    positions: list[Position] = field(default_factory=list[Position])


class PendingChunks:
    """Chunks whose message is not whole yet, of ``messages_max`` messages at most.

    ``on_expired`` is told of entries whose message did not become whole within ``timeout_s``: its
    producer is gone, and nothing can be made of them. ``on_dropped`` is told of entries that are
    good, and for which there is no room or which came in a wrong order: they are to come again.
    """

    def __init__(self, messages_max: int, timeout_s: float, clock: Clock) -> None:
        self._messages_max = messages_max
        self._timeout_s = timeout_s
        self._clock = clock
        # In the order of their first chunks, which is that of their times.
        self._incomplete: dict[str, _Incomplete] = {}
        self.on_expired: Callable[[list[Position]], None] = _ignore
        self.on_dropped: Callable[[list[Position]], None] = _ignore

    def add(
        self, metadata: MessageMetadata, body: bytes, position: Position
    ) -> WholeMessage | None:
        """Take in one chunk; gives the message if it was the last. Raises ``UnreadableMessage``."""
        if metadata.total_chunk_msg_size > CHUNKED_BYTES_MAX:
            raise UnreadableMessage(f"its chunks have {metadata.total_chunk_msg_size} bytes")
        self._expire()
        uuid, index = metadata.uuid, metadata.chunk_id
        if index == 0:
            self._begin(uuid, metadata.num_chunks_from_msg)
        message = self._incomplete.get(uuid)
        if message is None or index != len(message.bodies):
            self._put_aside(message, metadata, position)
            return None
        message.bodies.append(body)
        message.positions.append(position)
        if sum(map(len, message.bodies)) > CHUNKED_BYTES_MAX:
            del self._incomplete[uuid]
            raise UnreadableMessage(f"its chunks have more than {CHUNKED_BYTES_MAX} bytes")
        if len(message.bodies) < message.chunks:
            return None
        del self._incomplete[uuid]
        return WholeMessage(b"".join(message.bodies), tuple(message.positions[:-1]))

    def next_chunk(self, uuid: str) -> int:
        """Which chunk of that message is the next one: 0 where none is here."""
        message = self._incomplete.get(uuid)
        return 0 if message is None else len(message.bodies)

    def clear(self) -> None:
        """Forget everything: all of it comes again."""
        self._incomplete.clear()

    def _begin(self, uuid: str, chunks: int) -> None:
        self._incomplete.pop(uuid, None)  # delivered again from its first chunk on
        if len(self._incomplete) >= self._messages_max:
            oldest = next(iter(self._incomplete))
            self.on_dropped(self._incomplete.pop(oldest).positions)
        self._incomplete[uuid] = _Incomplete(self._clock.monotonic() + self._timeout_s, chunks)

    def _put_aside(
        self, message: _Incomplete | None, metadata: MessageMetadata, position: Position
    ) -> None:
        """A chunk came whose turn it is not: a repeat, or those before it are not here."""
        if message is not None and position in message.positions:
            return
        age_ms = self._clock.wall_ms() - metadata.publish_time
        if age_ms > self._timeout_s * 1000:
            # The chunks before were given up, or its producer died: it would come for ever.
            self.on_expired([position])
            return
        together = [position]
        if message is not None:
            del self._incomplete[metadata.uuid]
            together = [*message.positions, position]
        self.on_dropped(together)

    def _expire(self) -> None:
        now_s = self._clock.monotonic()
        while self._incomplete:
            oldest = next(iter(self._incomplete))
            if self._incomplete[oldest].expires_s > now_s:
                return
            self.on_expired(self._incomplete.pop(oldest).positions)


def _ignore(_: list[Position]) -> None:
    """Until the owner says what it wants to hear."""
