"""Cuts a byte stream into frames: what Pulsar's and BookKeeper's streams have in common.

Both put a size before every frame and leave the rest to the command inside. What a frame means is
not this module's business.
"""

from __future__ import annotations

from struct import Struct

from geminga_protocol.errors import OversizedFrame

# +------------+----------------------+
# | frame size | frame                |      frame size counts what follows it
# |  u32       |  [frame size] bytes  |
# +------------+----------------------+
FRAME_SIZE = Struct(">I")
FRAME_SIZE_BYTES = 4
assert FRAME_SIZE.size == FRAME_SIZE_BYTES

# A peer that sends a frame in tiny pieces makes us hold many small objects, each with 33 bytes of
# its own; so many of them are joined into one. Every byte is copied at most twice.
LOOSE_CHUNKS_MAX = 256

Bounds = list[tuple[int, int]]


class FrameReader:
    """Takes a stream in pieces of any size, gives back its frames.

    Keeps the bytes of the one unfinished frame and nothing else, hence never more than
    ``frame_bytes_max`` plus one piece. After it raised, the stream has lost its frame borders:
    throw the reader away and close the connection.
    """

    __slots__ = ("_chunks", "_held_bytes", "_loose_chunks", "_wanted_bytes", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        """Refuse frames of more than ``frame_bytes_max`` bytes (their size field not counted).

        The limit may be changed at any time, for what comes then.
        """
        self.frame_bytes_max = frame_bytes_max
        self._chunks: list[bytes] = []
        self._held_bytes = 0
        self._loose_chunks = 0
        self._wanted_bytes = FRAME_SIZE_BYTES

    @property
    def held_bytes(self) -> int:
        """How many bytes of an unfinished frame are held; 0 between two frames."""
        return self._held_bytes

    def feed(self, chunk: bytes) -> tuple[bytes, Bounds]:
        """Take the next piece of the stream; give the frames that are whole now.

        Returns ``(buffer, bounds)``: each ``(start, end)`` of ``bounds`` is one frame inside
        ``buffer``, without its size field, in the order of the stream. Frames are given where
        they lie, so that nothing is copied which nobody keeps.

        Raises ``OversizedFrame``, as soon as the size is known; frames that came whole in the
        same piece are lost with it, as if the connection had broken before they arrived.
        """
        if self._held_bytes:
            self._hold(chunk)
            if self._held_bytes < self._wanted_bytes:
                return b"", []
            chunk = b"".join(self._chunks)
            self._chunks.clear()
            self._held_bytes = self._loose_chunks = 0
        return chunk, self._split(chunk)

    def _split(self, buffer: bytes) -> Bounds:
        frame_bytes_max = self.frame_bytes_max
        read_size = FRAME_SIZE.unpack_from
        bounds: Bounds = []
        buffer_bytes = len(buffer)
        position = 0
        wanted_bytes = FRAME_SIZE_BYTES
        while (start := position + FRAME_SIZE_BYTES) <= buffer_bytes:
            (frame_bytes,) = read_size(buffer, position)
            if frame_bytes > frame_bytes_max:
                raise OversizedFrame(frame_bytes, frame_bytes_max)
            end = start + frame_bytes
            if end > buffer_bytes:
                wanted_bytes = FRAME_SIZE_BYTES + frame_bytes
                break
            bounds.append((start, end))
            position = end
        self._wanted_bytes = wanted_bytes
        if position < buffer_bytes:
            self._hold(buffer[position:])
        return bounds

    def _hold(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._held_bytes += len(chunk)
        self._loose_chunks += 1
        if self._loose_chunks == LOOSE_CHUNKS_MAX:
            self._chunks[-LOOSE_CHUNKS_MAX:] = [b"".join(self._chunks[-LOOSE_CHUNKS_MAX:])]
            self._loose_chunks = 0
