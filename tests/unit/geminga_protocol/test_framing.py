"""Proves that a stream gives the same frames however it is cut, and refuses oversized ones."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.errors import OversizedFrame
from geminga_protocol.framing import FrameReader

FRAME_BYTES_MAX = 1000


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def read(reader: FrameReader, *chunks: bytes) -> list[bytes]:
    frames: list[bytes] = []
    for chunk in chunks:
        buffer, bounds = reader.feed(chunk)
        frames += [buffer[start:end] for start, end in bounds]
    return frames


def test_frames_of_one_chunk_come_in_the_order_of_the_stream() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    assert read(reader, framed(b"a", b"", b"ccc")) == [b"a", b"", b"ccc"]
    assert reader.held_bytes == 0


def test_frames_that_are_whole_are_given_where_they_lie() -> None:
    chunk = framed(b"first", b"second")
    buffer, bounds = FrameReader(FRAME_BYTES_MAX).feed(chunk)
    assert buffer is chunk
    assert bounds == [(4, 9), (13, 19)]


def test_a_stream_cut_at_every_byte_gives_the_same_frames() -> None:
    frames = [b"one", b"", b"three" * 20, b"4"]
    stream = framed(*frames)
    for cut in range(len(stream) + 1):
        assert read(FrameReader(FRAME_BYTES_MAX), stream[:cut], stream[cut:]) == frames
    one_by_one = [stream[i : i + 1] for i in range(len(stream))]
    assert read(FrameReader(FRAME_BYTES_MAX), *one_by_one) == frames


def test_an_unfinished_frame_is_held_until_it_ends() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    stream = framed(b"12345")
    assert read(reader, stream[:-1]) == []
    assert reader.held_bytes == len(stream) - 1
    assert read(reader, stream[-1:]) == [b"12345"]
    assert reader.held_bytes == 0


def test_a_large_frame_in_many_tiny_chunks_is_held_in_few_objects() -> None:
    frame = bytes(range(256)) * 400
    reader = FrameReader(len(frame))
    stream = framed(frame)
    chunks = [stream[i : i + 2] for i in range(0, len(stream), 2)]
    assert read(reader, *chunks[:-1]) == []
    assert len(reader._chunks) < len(chunks) / 100
    assert read(reader, chunks[-1]) == [frame]


def test_the_largest_frame_allowed_is_read() -> None:
    frame = bytes(FRAME_BYTES_MAX)
    assert read(FrameReader(FRAME_BYTES_MAX), framed(frame)) == [frame]


def test_a_larger_frame_is_refused_as_soon_as_its_size_is_known() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    size = struct.pack(">I", FRAME_BYTES_MAX + 1)
    assert read(reader, size[:3]) == []
    with pytest.raises(OversizedFrame) as caught:
        reader.feed(size[3:])
    assert caught.value.frame_bytes == FRAME_BYTES_MAX + 1
    assert caught.value.frame_bytes_max == FRAME_BYTES_MAX


@given(
    frames=st.lists(st.binary(max_size=600), max_size=20),
    cuts=st.lists(st.integers(min_value=0, max_value=12_000), max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_cuts_make_no_difference(frames: list[bytes], cuts: list[int]) -> None:
    stream = framed(*frames)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    assert read(FrameReader(FRAME_BYTES_MAX), *chunks) == frames
