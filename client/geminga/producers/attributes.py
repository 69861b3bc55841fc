"""What is said about a message besides its payload, as users give it and as metadata holds it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geminga_protocol.pulsar.api_pb2 import MessageMetadata, SingleMessageMetadata
from geminga_protocol.pulsar.commands import key_values
from geminga_protocol.pulsar.integers import encode_varint


@dataclass(slots=True)
class MessageAttributes:
    """The attributes of one message; most messages have none of them, and then no such object.

    A key of bytes is stored as base64 and a note of that. Times are milliseconds since 1970.
    """

    key: str | bytes | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] | None = None
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    replicate_to: Sequence[str] | None = None
    is_null: bool = False
    # Of a pair whose parts stand apart: its key is null, as it has no key otherwise.
    has_null_key: bool = False

    @property
    def goes_alone(self) -> bool:
        """Is it among what only the metadata of a whole payload has a place for?"""
        return self.deliver_at_ms is not None or self.replicate_to is not None

    @property
    def partition_key(self) -> str | None:
        """The key as it is stored, and as partitions are chosen by it."""
        key = self.key
        return b64encode(key).decode() if isinstance(key, bytes) else key

    @property
    def batch_key(self) -> str | bytes | None:
        """What messages of one key-based batch have in common."""
        return self.partition_key if self.ordering_key is None else self.ordering_key

    def encode_for_batch(self) -> bytes:
        """The fields of ``SingleMessageMetadata``, all but payload size and sequence id.

        Raises ``UnicodeEncodeError`` or ``TypeError`` for what is no text.
        """
        has_only_key = not (
            self.properties or self.ordering_key or self.event_time_ms or self.is_null
        )
        if has_only_key and isinstance(self.key, str):  # by hand, as nearly all that have any
            key = self.key.encode()
            return b"\x12" + encode_varint(len(key)) + key
        single = SingleMessageMetadata(
            properties=key_values(self.properties),
            partition_key=self.partition_key,
            ordering_key=self.ordering_key,
            event_time=self.event_time_ms,
        )
        if isinstance(self.key, bytes):
            single.partition_key_b64_encoded = True
        if self.is_null:
            single.null_value = True
        if self.has_null_key:
            single.null_partition_key = True
        return single.SerializePartialToString()

    def describe(self, metadata: MessageMetadata) -> None:
        """Set the fields of a payload that holds nothing but this message."""
        self.describe_keys(metadata)
        metadata.properties.extend(key_values(self.properties))
        if self.event_time_ms is not None:
            metadata.event_time = self.event_time_ms
        if self.deliver_at_ms is not None:
            metadata.deliver_at_time = self.deliver_at_ms
        if self.replicate_to is not None:
            # As upstream: a message for no other cluster says so with a name that no cluster has.
            metadata.replicate_to.extend(self.replicate_to or [LOCAL_CLUSTER_ONLY])
        if self.is_null:
            metadata.null_value = True

    def describe_keys(self, metadata: MessageMetadata) -> None:
        """Set the keys of a payload: of its only message, or of the first in its batch."""
        if self.key is not None:
            metadata.partition_key = self.partition_key or ""
            if isinstance(self.key, bytes):
                metadata.partition_key_b64_encoded = True
        if self.has_null_key:
            metadata.null_partition_key = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key


# TypedMessageBuilderImpl.disableReplication.
LOCAL_CLUSTER_ONLY = "__local__"
