"""Proves that compressed bodies are read as they were, and that damage is an error."""

from __future__ import annotations

import sys

import pytest

from geminga import Client, MissingExtra, UnreadableMessage
from geminga.compression import UNCOMPRESSED_BYTES_MAX, CompressionName, compressor, decompress
from geminga_protocol.pulsar import api_pb2 as api

NAMES: list[CompressionName] = ["lz4", "zlib", "zstd", "snappy"]
BODIES = [b"", b"a", b"ab" * 5000, bytes(range(256)) * 3]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", BODIES)
def test_what_is_compressed_can_be_read_again(name: CompressionName, body: bytes) -> None:
    made = compressor(name)
    assert made is not None
    assert decompress(made.type, made.compress(body), len(body)) == body


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_size_and_damage_are_told(name: CompressionName) -> None:
    made = compressor(name)
    assert made is not None
    compressed = made.compress(b"ab" * 5000)
    for size in (0, 1, 9_999, 10_001, UNCOMPRESSED_BYTES_MAX + 1):
        with pytest.raises(UnreadableMessage):
            decompress(made.type, compressed, size)
    for damaged in (b"", b"\xff" * 40, compressed[:-5]):
        with pytest.raises(UnreadableMessage):
            decompress(made.type, damaged, 10_000)


def test_no_compression_changes_nothing() -> None:
    assert compressor("none") is None
    assert decompress(api.NONE, b"body", 0) == b"body"


async def test_what_is_no_compression_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="'gzip' is no compression"):
        await client.producer("orders", compression="gzip")  # type: ignore[call-overload]  # the test


async def test_a_missing_package_names_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(MissingExtra, match=r"pip install 'geminga\[compression\]'") as caught:
        await client.producer("orders", compression="lz4")
    assert caught.value.extra == "compression"
    with pytest.raises(UnreadableMessage, match=r"geminga\[compression\]"):
        decompress(api.LZ4, b"", 1)
    await client.producer("orders", compression="zlib")
