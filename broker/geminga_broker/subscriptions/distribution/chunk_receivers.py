"""Which consumer of a Shared subscription gets the chunks of a message: always the same. Pure.

A message in chunks can only be put together where all of its chunks are (as upstream's
``SharedConsumerAssignor``). Whoever gets the first that is sent gets the others; when that consumer
has no room they wait for it, and when it goes they go to another.
"""

from __future__ import annotations

from typing import NamedTuple

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import metadata_bounds, parse_metadata

# MessageMetadata.chunk_id is field 29, a varint: (29 << 3 | 0) as a varint.
CHUNK_ID_TAG = b"\xe8\x01"
# Messages that are sent in part. Of more, those that began first are forgotten: their producers
# have gone before their last chunk, or a consumer has far more of them than it can put together.
MESSAGES_MAX = 1000
# Chunks that wait for their consumers, over which no more of the log is read.
WAITING_MAX = 10_000


class Chunk(NamedTuple):
    """Part of the message ``uuid``."""

    uuid: str
    is_last: bool


def chunk_of(payload: bytes) -> Chunk | None:
    """The chunk that a stored entry is; None for any other entry."""
    try:
        start, end = metadata_bounds(payload, 0, len(payload))
        if payload.find(CHUNK_ID_TAG, start, end) < 0:
            return None
        metadata = parse_metadata(payload)
    except WireError:
        return None
    if not metadata.HasField("chunk_id") or metadata.num_chunks_from_msg <= 1:
        return None
    return Chunk(metadata.uuid, metadata.chunk_id == metadata.num_chunks_from_msg - 1)


class ChunkReceivers:
    """Of one subscription: ``waiting`` are the chunks of those who have no room for them, and
    ``served`` is who is being sent what waited."""

    __slots__ = ("_receivers", "served", "waiting")

    def __init__(self) -> None:
        self.served: Consumer | None = None
        self.waiting: dict[Consumer, ReplayQueue] = {}
        self._receivers: dict[str, Consumer] = {}

    def receiver(self, chunk: Chunk, consumer: Consumer) -> Consumer:
        """Who gets the chunk: ``consumer``, where nobody has got any other of its message."""
        receivers = self._receivers
        receiver = receivers.setdefault(chunk.uuid, consumer)
        if chunk.is_last:
            del receivers[chunk.uuid]
        elif len(receivers) > MESSAGES_MAX:
            del receivers[next(iter(receivers))]
        return receiver

    def must_wait(self, consumer: Consumer) -> bool:
        """Whether a chunk cannot be sent to it now, or would overtake others."""
        if consumer is self.served:
            return False
        return not consumer.can_take or consumer in self.waiting

    def wait(self, chunk: Chunk, position: EntryId, consumer: Consumer) -> None:
        """Let a chunk wait until ``consumer`` has room; those behind it are for it as well."""
        self._receivers[chunk.uuid] = consumer
        self.waiting.setdefault(consumer, ReplayQueue()).add(position)

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return sum(map(len, self.waiting.values()))

    def discard(self, position: EntryId) -> None:
        """One needs not be sent any more."""
        for queue in self.waiting.values():
            queue.discard(position)

    def left(self, consumer: Consumer) -> list[EntryId]:
        """``consumer`` is gone: what waited for it is anybody's."""
        self._receivers = {
            uuid: each for uuid, each in self._receivers.items() if each is not consumer
        }
        return list(self.waiting.pop(consumer, ()))

    def clear(self) -> None:
        """Begin anew."""
        self.waiting.clear()
        self._receivers.clear()
