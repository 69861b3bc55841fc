"""A message as a consumer receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga.message_ids import MessageId


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a topic: its payload, and what its producer and the broker say about it.

    Times are milliseconds since 1970-01-01 UTC. ``redelivery_count`` is how often it was
    delivered before. ``key`` is ``None`` for a message without one, ``payload`` is empty for a
    message whose value is null (``is_null``).
    """

    payload: bytes
    message_id: MessageId
    topic: str
    producer_name: str
    sequence_id: int
    publish_time_ms: int
    event_time_ms: int | None
    key: str | None
    ordering_key: bytes | None
    properties: Mapping[str, str]
    redelivery_count: int
    is_null: bool
