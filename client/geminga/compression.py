"""Compression of payloads: LZ4, ZLIB, ZSTD and SNAPPY, as every Pulsar client has them.

ZLIB is Python's own; the others come with the package ``cramjam``, which is imported when one of
them is first used. LZ4 are raw blocks, SNAPPY the raw format, ZLIB and ZSTD whole streams: what
upstream's clients write and read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from geminga.errors import MissingExtra, UnreadableMessage
from geminga_protocol.pulsar import api_pb2 as api

CompressionName = Literal["none", "lz4", "zlib", "zstd", "snappy"]

# A few kilobytes can be crafted to decompress to gigabytes. By default a batch holds at most 5 MiB.
UNCOMPRESSED_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Compressor:
    """One way to make payloads smaller."""

    # What the metadata of a payload says of it.
    type: api.CompressionType.ValueType
    compress: Callable[[bytes], bytes]


def compressor(name: CompressionName) -> Compressor | None:
    """The compressor of this name, ``None`` for ``"none"``.

    Raises ``MissingExtra`` where its package is not installed, ``ValueError`` for another name.
    """
    if name == "none":
        return None
    if name == "zlib":
        return Compressor(api.ZLIB, zlib.compress)
    if name not in ("lz4", "zstd", "snappy"):
        raise ValueError(f"{name!r} is no compression: none, lz4, zlib, zstd or snappy")
    # Imported when a producer is asked for, and not with its first message: so a missing package is
    # an error of ``Client.producer``.
    cramjam = _cramjam(name)
    if name == "lz4":
        # The size is in the metadata of the payload, and not in front of the block.
        compress_block = cramjam.lz4.compress_block
        # ``bytes`` copies what the library returns, a buffer of its own type.
        return Compressor(api.LZ4, lambda body: bytes(compress_block(body, store_size=False)))
    if name == "zstd":
        compress_frame = cramjam.zstd.compress
        return Compressor(api.ZSTD, lambda body: bytes(compress_frame(body)))
    compress_raw = cramjam.snappy.compress_raw
    return Compressor(api.SNAPPY, lambda body: bytes(compress_raw(body)))


def decompress(kind: api.CompressionType.ValueType, body: bytes, size_bytes: int) -> bytes:
    """What ``body`` was before it was compressed: ``size_bytes`` bytes, as its metadata says.

    Raises ``UnreadableMessage`` for a body that is damaged or leads to another size, and where the
    package for its compression is not installed.
    """
    if kind == api.NONE:
        return body
    # Before any memory is taken: the size is what the producer claims.
    if size_bytes > UNCOMPRESSED_BYTES_MAX:
        raise UnreadableMessage(f"uncompressed it has {size_bytes} bytes")
    try:
        if kind == api.ZLIB:
            # At most one byte too many: enough to see that the size is wrong. Never 0, which zlib
            # takes for no limit.
            inflated = zlib.decompressobj().decompress(body, size_bytes + 1)
        else:
            inflated = _inflate(kind, body, size_bytes)
    except MissingExtra as error:
        raise UnreadableMessage(str(error)) from error
    except zlib.error as error:
        raise UnreadableMessage(f"its compression is damaged: {error}") from error
    if len(inflated) != size_bytes:
        raise UnreadableMessage("its size is not what its producer says")
    return inflated


def _inflate(kind: api.CompressionType.ValueType, body: bytes, size_bytes: int) -> bytes:
    """Decompress by ``cramjam``, which fails for more than ``size_bytes``."""
    names = {api.LZ4: "lz4", api.ZSTD: "zstd", api.SNAPPY: "snappy"}
    if kind not in names:
        raise UnreadableMessage(f"its compression, number {kind}, is not known")
    cramjam = _cramjam(names[kind])
    inflate_into = {
        api.LZ4: cramjam.lz4.decompress_block_into,
        api.ZSTD: cramjam.zstd.decompress_into,
        api.SNAPPY: cramjam.snappy.decompress_raw_into,
    }[kind]
    # Of just the claimed size: the library writes no further, whatever the body would become.
    inflated = bytearray(size_bytes)
    try:
        written = inflate_into(body, inflated)
    except cramjam.DecompressionError as error:
        raise UnreadableMessage(f"its compression is damaged: {error}") from error
    return bytes(inflated[:written])


def _cramjam(compression: str) -> ModuleType:
    try:
        import cramjam  # noqa: PLC0415  # most clients do without
    except ImportError as error:
        raise MissingExtra(f"compression with {compression}", "compression") from error
    return cramjam
