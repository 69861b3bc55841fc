"""What a message tells its consumer about its encryption.

Brokers and clients carry it beside the body, in the metadata (PIP-4, ``EncryptionKeys`` of
PulsarApi.proto); the names are those of Pulsar's Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga_protocol.pulsar.api_pb2 import CompressionType, MessageMetadata


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """The data key of a message, wrapped for one reader.

    ``value`` is the wrapped key, ``metadata`` what the producer's ``PublicKey`` had.
    """

    value: bytes
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EncryptionContext:
    """How a message was encrypted (``EncryptionContext`` of Pulsar's Java client).

    - ``keys``: the message's data key, wrapped for each reader, by the names of the readers.
    - ``param``: the nonce, 12 bytes.
    - ``algorithm``: what the producer says of the algorithm, mostly the empty text.
    - ``compression``: ``"none"``, ``"lz4"``, ``"zlib"``, ``"zstd"`` or ``"snappy"``.
    - ``uncompressed_bytes``: the size of the body before it was compressed.
    - ``batch_size``: how many messages are in the body; ``None`` for one that was sent alone.
    - ``chunk``: ``(index, chunks)`` of a message in chunks.
    - ``is_decrypted``: whether the consumer has opened the message, and its ``data`` are what was
      sent. Otherwise ``data`` are the stored body, which another program can still open: AES-GCM
      outside, and inside it the compression.
    """

    keys: Mapping[str, EncryptionKey]
    param: bytes
    algorithm: str
    compression: str
    uncompressed_bytes: int
    batch_size: int | None
    chunk: tuple[int, int] | None
    is_decrypted: bool


def context_of(metadata: MessageMetadata, *, is_decrypted: bool) -> EncryptionContext | None:
    """The context of an entry with this metadata; ``None`` if it was not encrypted."""
    if not metadata.encryption_keys:
        return None
    chunks = metadata.num_chunks_from_msg  # 0 for a message that was sent whole
    return EncryptionContext(
        {
            key.key: EncryptionKey(key.value, {each.key: each.value for each in key.metadata})
            for key in metadata.encryption_keys
        },
        metadata.encryption_param,
        metadata.encryption_algo,
        CompressionType.Name(metadata.compression).lower(),
        metadata.uncompressed_size,
        # By the presence of the field: a batch may have one message.
        metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else None,
        (metadata.chunk_id, chunks) if chunks > 1 else None,
        is_decrypted,
    )
