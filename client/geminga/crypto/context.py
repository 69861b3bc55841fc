"""How a message was encrypted: what it takes to have it decrypted elsewhere.

Brokers and clients carry it beside the body, in the metadata (PIP-4, ``EncryptionKeys`` of
PulsarApi.proto); the names are those of Pulsar's Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga_protocol.pulsar.api_pb2 import CompressionType, MessageMetadata


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A message's data key as it travels: ``value`` is what its producer wrapped for one reader,
    ``metadata`` what it said with the reader's public key."""

    value: bytes
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EncryptionContext:
    """How a message was encrypted (``EncryptionContext`` of Pulsar's Java client).

    ``keys`` are by the readers' names, ``param`` is the nonce (12 bytes), ``algorithm`` what the
    producer says of it, which is mostly nothing. With ``is_decrypted`` the
    consumer has opened it, and the message's ``data`` are what was sent. Else they are the stored
    body: encrypted by AES-GCM, and inside compressed by ``compression``, to be
    ``uncompressed_bytes`` long. ``batch_size`` is ``None`` for a message that was sent alone; of a
    batch the body is all its messages. ``chunk`` is ``(index, chunks)`` of one in chunks.
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
    """What the metadata of an entry say; ``None`` if it was not encrypted."""
    if not metadata.encryption_keys:
        return None
    chunks = metadata.num_chunks_from_msg
    return EncryptionContext(
        {
            key.key: EncryptionKey(key.value, {each.key: each.value for each in key.metadata})
            for key in metadata.encryption_keys
        },
        metadata.encryption_param,
        metadata.encryption_algo,
        CompressionType.Name(metadata.compression).lower(),
        metadata.uncompressed_size,
        metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else None,
        (metadata.chunk_id, chunks) if chunks > 1 else None,
        is_decrypted,
    )
