"""What the fake broker stored, opened as a consumer would."""

from __future__ import annotations

from typing import NamedTuple

from tests.unit.geminga.fake_broker import FakeBroker

from geminga.compression import decompress
from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.messages.payload import open_payload, split_batch


class Stored(NamedTuple):
    """A message, and the metadata that says more about it: its own, or that of its payload."""

    body: bytes
    said: MessageMetadata | SingleMessageMetadata


def entries(broker: FakeBroker) -> list[list[Stored]]:
    """The messages of each stored payload."""
    found: list[list[Stored]] = []
    for payload in broker.payloads:
        metadata, body_start = open_payload(payload, 0, len(payload))
        body = decompress(metadata.compression, payload[body_start:], metadata.uncompressed_size)
        if metadata.HasField("num_messages_in_batch"):
            singles = split_batch(body, metadata.num_messages_in_batch)
            found.append([Stored(each, single) for single, each in singles])
        else:
            found.append([Stored(body, metadata)])
    return found


def bodies(broker: FakeBroker) -> list[list[bytes]]:
    """The same, without what is said about them."""
    return [[message.body for message in messages] for messages in entries(broker)]


def metadata_of(broker: FakeBroker) -> list[MessageMetadata]:
    """The metadata of each stored payload."""
    return [open_payload(payload, 0, len(payload))[0] for payload in broker.payloads]
