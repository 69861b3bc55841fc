"""What compaction sees in a stored entry, and an entry with some of its messages taken out. Pure.

A batch is compacted inside, as upstream does it: a message that goes leaves an empty place with
``compacted_out``, so that those that stay keep their batch indexes. An entry that cannot be parsed,
because it is encrypted or damaged, stays as it is. Facts: ``RawBatchConverter`` and
``AbstractTwoPhaseCompactor`` of Apache Pulsar.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import (
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_payload,
    metadata_bounds,
    skip_broker_entry,
    split_batch,
)
from geminga_protocol.pulsar.messages.protobuf import parse_message
from geminga_protocol.records.encodings.compression import inflate

# No batch is decompressed that would have more bytes: they are held in memory meanwhile.
BATCH_BYTES_MAX = 128 * 1024 * 1024
# The fastest: a compaction compresses many batches, and saving some more bytes is worth less.
ZLIB_LEVEL = 1


class Chunk(NamedTuple):
    """Which part of a message that was sent in several entries (chunks) an entry is."""

    uuid: str
    is_first: bool
    is_last: bool


class Message(NamedTuple):
    """What compaction knows of one message of an entry."""

    key: str | None
    # A message without a value deletes its key.
    has_value: bool
    # The empty place of a message that was compacted out before.
    is_gone: bool = False
    # Set where the entry is only a part of the message.
    chunk: Chunk | None = None


GONE = Message(None, has_value=False, is_gone=True)


def messages_of(payload: bytes) -> list[Message] | None:
    """The messages of an entry, in order; none for a marker, which only brokers need.

    None for an entry that cannot be parsed here: it stays whole.
    """
    try:
        metadata, body = _opened(payload)
        # No message, so no number: both phases skip the entry, and it is not written.
        if metadata.HasField("marker_type"):
            return []
        if not metadata.HasField("num_messages_in_batch"):
            count, index = metadata.num_chunks_from_msg, metadata.chunk_id
            if count > 1:
                # A message that was cut into chunks is not empty.
                chunk = Chunk(metadata.uuid, is_first=index == 0, is_last=index == count - 1)
                return [Message(_key(metadata), has_value=True, chunk=chunk)]
            # What it had before it was compressed and encrypted: these make bytes out of none.
            has_size = metadata.HasField("uncompressed_size")
            size_bytes = metadata.uncompressed_size if has_size else len(body)
            return [Message(_key(metadata), size_bytes > 0)]
        # The metadata of the single messages of a batch is encrypted with them.
        if metadata.encryption_keys:
            return None
        return [
            GONE if single.compacted_out else Message(_key(single), single.payload_size > 0)
            for single, _ in _singles(metadata, body)
        ]
    except WireError:
        return None


def _opened(payload: bytes) -> tuple[MessageMetadata, bytes]:
    """The metadata of an entry and what follows it."""
    start, end = metadata_bounds(payload, 0, len(payload))
    return parse_message(MessageMetadata, payload[start:end]), payload[end:]


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> str | None:
    return metadata.partition_key if metadata.HasField("partition_key") else None


def _singles(metadata: MessageMetadata, body: bytes) -> list[tuple[SingleMessageMetadata, bytes]]:
    """The messages of a batch. Raises ``WireError``."""
    size_bytes = metadata.uncompressed_size
    if metadata.compression != CompressionType.NONE:
        if size_bytes > BATCH_BYTES_MAX:
            raise WireError(f"a batch of {size_bytes} bytes is over the limit {BATCH_BYTES_MAX}")
        # The size comes from the producer; ``inflate`` gives no more than that.
        body = inflate(metadata.compression, body, size_bytes, "batch")
    return split_batch(body, metadata.num_messages_in_batch)


def keep_only(payload: bytes, keeps: Sequence[bool]) -> bytes | None:
    """The entry with those of its messages whose place in ``keeps`` is True; None without any.

    Its bytes stay as they are where no message goes. A compressed batch is compressed again, with
    ZLIB, which every client knows and which needs no package here. Raises ``WireError``.
    """
    if not any(keeps):
        return None
    metadata, body = _opened(payload)
    if not metadata.HasField("num_messages_in_batch"):
        return payload
    # Opened a second time, after phase one: keeping all that was opened would take the topic's
    # size.
    singles = _singles(metadata, body)
    # Empty places from before count as taken out already.
    if all(keep or each.compacted_out for keep, (each, _) in zip(keeps, singles, strict=True)):
        return payload
    # As ``RawBatchConverter``: an empty message in the place of each that goes.
    kept = encode_batch(
        single if keep else (SingleMessageMetadata(payload_size=0, compacted_out=True), b"")
        for keep, single in zip(keeps, singles, strict=True)
    )
    # What else the metadata says (producer, sequence ids, times) stays as the producer wrote it.
    metadata.uncompressed_size = len(kept)
    if metadata.compression != CompressionType.NONE:
        metadata.compression = CompressionType.ZLIB
        kept = zlib.compress(kept, ZLIB_LEVEL)
    # The broker's stamp stays in front: the index and the time are those of the whole entry.
    head = payload[: skip_broker_entry(payload, 0, len(payload))]
    return head + encode_payload(metadata, kept)


def last_index(payload: bytes) -> int:
    """The batch index of the last message of an entry that was not taken out; -1 without a batch.

    Of a batch that cannot be parsed it is the index of its last message.
    """
    try:
        metadata, _ = _opened(payload)
    except WireError:
        return -1
    if not metadata.HasField("num_messages_in_batch"):
        return -1
    messages = messages_of(payload)
    # Encrypted or damaged: compaction has left it whole.
    if messages is None:
        return max(metadata.num_messages_in_batch, 1) - 1
    return max((index for index, each in enumerate(messages) if not each.is_gone), default=-1)
