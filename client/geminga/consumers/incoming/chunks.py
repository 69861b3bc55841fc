"""Messages in chunks: pieces of a large message, each stored as an entry of its own (PIP-37).

``PendingChunks`` decides which messages are whole and which have waited too long; its owner
acknowledges and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from geminga._channels.pending.acks import Position
from geminga.errors import UnreadableMessage
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_runtime.clock import Clock

# What all chunks of a message may add up to: the first one says how much that will be. Producers
# make messages of a few megabytes.
CHUNKED_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """All chunks of a message."""

    # The bodies of all chunks, joined.
    body: bytes
    # The entries of the chunks before the last, which are acknowledged with it.
    earlier: tuple[Position, ...]


@dataclass(slots=True, eq=False)
class _IncompleteMessage:
    # In seconds of the monotonic clock.
    expires_s: float
    # How many chunks the message has in all.
    chunks: int
    # Those that have come, in their order, and their entries.
    bodies: list[bytes] = field(default_factory=list[bytes])
    positions: list[Position] = field(default_factory=list[Position])


# What may become of a chunk, by its index and by how many chunks of its message are here:
#
#   index 0                  begins the message; what was here of it is dropped (``_end_run``)
#   index = number here      joins it; the last one makes the message whole
#   its entry is here        delivered again: ignored
#   index < number here,     the topic has it twice: given up (``on_expired``)
#     and a newer entry
#   else, and old            given up, too: it would come again without end
#   else                     out of order: all that is here comes again (``on_dropped``)
#
# An entry that is here ends in a whole message, which acknowledges it, or in one of the two
# callbacks. Those that ``clear`` drops, or index 0 delivered once more, do not: the broker delivers
# them again, since they are not acknowledged.
@dataclass(slots=True, eq=False)
class PendingChunks:
    """Chunks whose message is not whole yet, of ``messages_max`` messages at most."""

    messages_max: int
    timeout_s: float
    clock: Clock
    # Called with each entry that will never be part of a message: the message did not become whole
    # within ``timeout_s``, since its producer is gone, or the topic has the same chunk twice.
    on_expired: Callable[[Position], None] = lambda _: None
    # Called with each good entry that came in a wrong order, or for which there is no room: it has
    # to be delivered again.
    on_dropped: Callable[[Position], None] = lambda _: None
    # By the uuid of their message, in the order of first chunks, which is that of their times.
    _incomplete: dict[str, _IncompleteMessage] = field(
        default_factory=dict[str, _IncompleteMessage], init=False
    )

    def add(
        self, metadata: MessageMetadata, body: bytes, position: Position
    ) -> WholeMessage | None:
        """Take in one chunk; gives the message if it was the last. Raises ``UnreadableMessage``."""
        if metadata.total_chunk_msg_size > CHUNKED_BYTES_MAX:
            raise UnreadableMessage(f"its chunks have {metadata.total_chunk_msg_size} bytes")
        now_s = self.clock.monotonic()
        # Looked at only here: a message that waits while no other chunk comes takes no more memory,
        # and its time is up when the next one comes.
        while self._incomplete:
            oldest = next(iter(self._incomplete))
            if self._incomplete[oldest].expires_s > now_s:
                break
            for each in self._incomplete.pop(oldest).positions:
                self.on_expired(each)
        uuid, index = metadata.uuid, metadata.chunk_id
        if index == 0:
            self._end_run(uuid, position)
            if len(self._incomplete) >= self.messages_max:
                oldest = next(iter(self._incomplete))
                for each in self._incomplete.pop(oldest).positions:
                    self.on_dropped(each)
            self._incomplete[uuid] = _IncompleteMessage(
                now_s + self.timeout_s, metadata.num_chunks_from_msg
            )
        message = self._incomplete.get(uuid)
        if message is None or index != len(message.bodies):
            self._put_aside(message, metadata, position)
            return None
        message.bodies.append(body)
        message.positions.append(position)
        # What the first chunk said was checked; a damaged producer may send more than that.
        if sum(map(len, message.bodies)) > CHUNKED_BYTES_MAX:
            del self._incomplete[uuid]
            raise UnreadableMessage(f"its chunks have more than {CHUNKED_BYTES_MAX} bytes")
        if len(message.bodies) < message.chunks:
            return None
        del self._incomplete[uuid]
        return WholeMessage(b"".join(message.bodies), tuple(message.positions[:-1]))

    def next_chunk(self, uuid: str) -> int:
        """The index of the next chunk of this message: 0 where none is here."""
        message = self._incomplete.get(uuid)
        return 0 if message is None else len(message.bodies)

    def clear(self) -> None:
        """Forget everything: the broker delivers all of it again."""
        self._incomplete.clear()

    def _end_run(self, uuid: str, position: Position) -> None:
        """Forget what is here of a message whose first chunk comes now."""
        begun = self._incomplete.pop(uuid, None)
        # The broker delivers again what is here, from the first chunk on.
        if begun is None or position in begun.positions:
            return
        # The producer has sent the message again, from the first chunk on, and the topic has some
        # chunks twice. The newer ones become the message. Where an older one was asked for again
        # and comes late, all have to come again in their order, to show which ones belong together.
        report = self.on_expired if position > begun.positions[-1] else self.on_dropped
        for each in begun.positions:
            report(each)

    def _put_aside(
        self, message: _IncompleteMessage | None, metadata: MessageMetadata, position: Position
    ) -> None:
        """Drop a chunk out of turn: it is a repetition, or the chunks before it are missing."""
        if message is not None and position in message.positions:
            return
        # The topic has the chunk twice: after a reconnect its producer sent it again without the
        # chunks that were confirmed, and brokers that drop repetitions do so for whole messages
        # only. Upstream's ``ConsumerImpl.processMessageChunk`` leaves such chunks out, too.
        if (
            message is not None
            and metadata.chunk_id < len(message.bodies)
            and position > message.positions[-1]
        ):
            self.on_expired(position)
            return
        # The producer's clock is compared with this machine's, since nothing tells how long the
        # chunk has been delivered in vain.
        age_ms = self.clock.wall_ms() - metadata.publish_time
        if age_ms > self.timeout_s * 1000:
            # The chunks before it have expired, or its producer died before it sent them. Asked for
            # again, it would come without end.
            self.on_expired(position)
            return
        if message is not None:
            # All chunks have to come again, so that they come in their order.
            del self._incomplete[metadata.uuid]
            for each in message.positions:
                self.on_dropped(each)
        self.on_dropped(position)
