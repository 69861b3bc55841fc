"""Cuts a byte stream into frames, for Pulsar's and BookKeeper's protocols alike.

Both put a 32-bit size before every frame. What is inside a frame is parsed elsewhere
(``pulsar/commands.py``, ``bookkeeper/v2.py`` and ``bookkeeper/v3.py``).
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

# A peer that sends a frame in tiny pieces makes the reader hold many small objects, and each
# ``bytes`` object costs 33 bytes beside its content: a frame sent two bytes at a time would take 20
# times its size. So every 256 pieces are joined into one. Every byte is copied at most twice: once
# here, once when the frame is complete.
LOOSE_CHUNKS_MAX = 256

# Where frames lie in a buffer: (start, end) of each, without its size field.
Bounds = list[tuple[int, int]]


class FrameReader:
    """Takes a stream in pieces of any size and returns its frames.

    The reader keeps only the bytes of the one unfinished frame, so it never holds more than
    ``frame_bytes_max`` plus one piece. After ``feed`` raised, the borders between frames are lost:
    discard the reader and close the connection.
    """

    __slots__ = ("_chunks", "_loose_chunks", "_wanted_bytes", "frame_bytes_max", "held_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        """Refuse frames of more than ``frame_bytes_max`` bytes (their size field not counted)."""
        # May be changed at any time; the new limit holds for the pieces that are fed after it.
        self.frame_bytes_max = frame_bytes_max
        # Bytes of the unfinished frame, its size field included; 0 between two frames. Read only.
        # Between two calls of ``feed``, ``held_bytes`` is less than ``_wanted_bytes``: otherwise
        # the frame would have been complete, and returned.
        self.held_bytes = 0
        # The pieces that these bytes came in, or several of them joined.
        self._chunks: list[bytes] = []
        # Pieces at the end of ``_chunks`` that were not joined yet.
        self._loose_chunks = 0
        # The size of the unfinished frame with its size field; until that has arrived, the size of
        # the size field. With fewer bytes than this there is no point in joining the pieces: a
        # large frame in many pieces would be copied once for each of them.
        self._wanted_bytes = FRAME_SIZE_BYTES

    def feed(self, chunk: bytes) -> tuple[bytes, Bounds]:
        """Take the next piece of the stream and return the frames that are complete now.

        Returns ``(buffer, bounds)``: each ``(start, end)`` of ``bounds`` is one frame inside
        ``buffer``, without its size field, in the order of the stream. Frames are not cut out of
        the buffer, because most callers copy only a part of each.

        Raises ``OversizedFrame`` as soon as the size is known. Complete frames in the same piece
        are lost then, as if the connection had broken before they arrived.
        """
        # Stage 1: the beginning of a frame is held. The piece either does not complete it and is
        # put beside the others, or all of them become one buffer, in which the frame starts at 0.
        if self.held_bytes:
            self._hold(chunk)
            if self.held_bytes < self._wanted_bytes:
                return b"", []
            chunk = b"".join(self._chunks)
            self._chunks.clear()
            self.held_bytes = self._loose_chunks = 0
        # Stage 2: from here on ``chunk`` begins with the size of a frame, and nothing is held. In
        # most cases it is the very object that the socket returned, so that nothing was copied so
        # far.
        frame_bytes_max = self.frame_bytes_max
        read_size = FRAME_SIZE.unpack_from
        bounds: Bounds = []
        buffer_bytes = len(chunk)
        position = 0
        wanted_bytes = FRAME_SIZE_BYTES
        while (start := position + FRAME_SIZE_BYTES) <= buffer_bytes:
            (frame_bytes,) = read_size(chunk, position)
            # Refused before any of the frame is held: its sender decides neither how much memory
            # the reader takes nor how long it waits for the rest.
            if frame_bytes > frame_bytes_max:
                raise OversizedFrame(frame_bytes, frame_bytes_max)
            end = start + frame_bytes
            if end > buffer_bytes:
                wanted_bytes = FRAME_SIZE_BYTES + frame_bytes
                break
            bounds.append((start, end))
            position = end
        # Stage 3: the rest is the beginning of the next frame. It is copied out, because a slice
        # that kept the whole piece alive would hold more memory than ``frame_bytes_max`` allows.
        self._wanted_bytes = wanted_bytes
        if position < buffer_bytes:
            self._hold(chunk[position:])
        return chunk, bounds

    def _hold(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.held_bytes += len(chunk)
        self._loose_chunks += 1
        # Only the pieces that are still loose are joined: those before them were joined already,
        # and joining these again would copy a large frame once for each 256 pieces.
        if self._loose_chunks == LOOSE_CHUNKS_MAX:
            self._chunks[-LOOSE_CHUNKS_MAX:] = [b"".join(self._chunks[-LOOSE_CHUNKS_MAX:])]
            self._loose_chunks = 0
