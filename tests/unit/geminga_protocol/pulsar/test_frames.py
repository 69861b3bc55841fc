"""Proves that the frames of a real cluster are cut out of its streams."""

from __future__ import annotations

from geminga_protocol.pulsar.frames import (
    FRAME_OVERHEAD_BYTES,
    MAX_MESSAGE_BYTES_DEFAULT,
    FrameReader,
)


def test_a_recorded_stream_cut_anywhere_gives_its_frames(golden_frames: list[bytes]) -> None:
    stream = b"".join(golden_frames)
    for chunk_bytes in (1, 2, 3, 7, 64, 1460, len(stream)):
        reader = FrameReader(MAX_MESSAGE_BYTES_DEFAULT + FRAME_OVERHEAD_BYTES)
        frames: list[bytes] = []
        for start in range(0, len(stream), chunk_bytes):
            buffer, bounds = reader.feed(stream[start : start + chunk_bytes])
            frames += [buffer[frame_start:end] for frame_start, end in bounds]
        assert frames == [wire[4:] for wire in golden_frames]
