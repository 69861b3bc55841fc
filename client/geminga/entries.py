"""Opens entries: from what a broker stores and delivers to the messages in it.

Checks the checksum, opens batches, leaves out what is acknowledged already. Which compressions and
features are understood is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga.compression import decompress
from geminga.errors import UnreadableMessage
from geminga.messages import BatchAcks, Message, MessageId
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.integers import signed, unsigned
from geminga_protocol.pulsar.payload import open_payload, split_batch

# A batch that says it has more messages than this lies; upstream's producers make 1,000.
BATCH_MESSAGES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """What one delivery brought: ``messages``, of the ``sent_messages`` that used a permit each.

    Those of a batch that were acknowledged before, or compacted away, are sent and not received.
    """

    messages: list[Message]
    sent_messages: int


def open_entry(
    topic: str, command: api.CommandMessage, buffer: bytes, start: int, end: int
) -> Entry:
    """The messages in a delivered entry, whose payload is ``buffer[start:end]``.

    Raises ``UnreadableMessage``.
    """
    try:
        metadata, body_start = open_payload(buffer, start, end)
        body = _decompress(metadata, buffer[body_start:end])
        if metadata.HasField("num_messages_in_batch"):
            return _open_batch(topic, command, metadata, body)
    except WireError as error:
        raise UnreadableMessage(str(error)) from error
    if metadata.num_chunks_from_msg > 1:
        raise UnreadableMessage("it is a chunk of a larger message")
    message = Message(
        payload=body,
        message_id=_message_id(command),
        topic=topic,
        producer_name=metadata.producer_name,
        sequence_id=metadata.sequence_id,
        publish_time_ms=metadata.publish_time,
        event_time_ms=metadata.event_time if metadata.HasField("event_time") else None,
        key=metadata.partition_key if metadata.HasField("partition_key") else None,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        properties={pair.key: pair.value for pair in metadata.properties},
        redelivery_count=command.redelivery_count,
        is_null=metadata.null_value,
    )
    return Entry([message], 1)


def _open_batch(
    topic: str, command: api.CommandMessage, metadata: api.MessageMetadata, body: bytes
) -> Entry:
    num_messages = metadata.num_messages_in_batch
    if not 0 < num_messages <= BATCH_MESSAGES_MAX:
        raise UnreadableMessage(f"it is a batch of {num_messages} messages")
    acks = BatchAcks(num_messages)
    messages: list[Message] = []
    for batch_index, (single, payload) in enumerate(split_batch(body, num_messages)):
        if single.compacted_out or is_acknowledged(command.ack_set, batch_index):
            acks.acknowledge(batch_index)
            continue
        has_own_sequence = single.HasField("sequence_id")
        message = Message(
            payload=payload,
            message_id=_message_id(command, batch_index, acks),
            topic=topic,
            producer_name=metadata.producer_name,
            sequence_id=single.sequence_id if has_own_sequence else metadata.sequence_id,
            publish_time_ms=metadata.publish_time,
            event_time_ms=single.event_time if single.HasField("event_time") else None,
            key=single.partition_key if single.HasField("partition_key") else None,
            ordering_key=single.ordering_key if single.HasField("ordering_key") else None,
            properties={pair.key: pair.value for pair in single.properties},
            redelivery_count=command.redelivery_count,
            is_null=single.null_value,
        )
        messages.append(message)
    return Entry(messages, num_messages)


def is_acknowledged(ack_set: Sequence[int], batch_index: int) -> bool:
    """Does an ack set (64-bit words, a bit for each message still open) lack this message?

    An empty set says nothing: the whole batch is open.
    """
    if not ack_set:
        return False
    word, bit = divmod(batch_index, 64)
    return word >= len(ack_set) or not unsigned(ack_set[word]) >> bit & 1


def _message_id(
    command: api.CommandMessage, batch_index: int = -1, acks: BatchAcks | None = None
) -> MessageId:
    proto = command.message_id
    return MessageId(
        signed(proto.ledgerId),
        signed(proto.entryId),
        batch_index,
        proto.partition,
        acks.size if acks is not None else 0,
        acks,
    )


def _decompress(metadata: api.MessageMetadata, body: bytes) -> bytes:
    if metadata.encryption_keys:
        raise UnreadableMessage("it is encrypted")
    return decompress(metadata.compression, body, metadata.uncompressed_size)
