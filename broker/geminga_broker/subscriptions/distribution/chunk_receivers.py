"""Which consumer of a Shared subscription gets the chunks of a message: always the same. Pure.

A message in chunks can be put together only where all its chunks are (upstream's
``SharedConsumerAssignor``). The consumer that gets the first chunk gets the others. While it has no
room, they wait for it; when it leaves, they go to another consumer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.distribution.replay_queue import ReplayQueue
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import metadata_bounds, parse_metadata

# MessageMetadata.chunk_id is field 29, a varint: (29 << 3 | 0) as a varint.
CHUNK_ID_TAG = b"\xe8\x01"
# Messages that are sent in part. If there are more, those that began first are forgotten: their
# producers have left before the last chunk, or a consumer has far more than it can put together.
MESSAGES_MAX = 1000
# Chunks that wait for their consumers. With more of them, no new entries are read.
WAITING_MAX = 10_000


class Chunk(NamedTuple):
    """A chunk of the message ``uuid``."""

    uuid: str
    is_last: bool


def chunk_of(payload: bytes) -> Chunk | None:
    """The chunk that a stored entry is; None for any other entry."""
    try:
        # Searching for the tag is far quicker than parsing; it may be found by chance, though.
        start, end = metadata_bounds(payload, 0, len(payload))
        if payload.find(CHUNK_ID_TAG, start, end) < 0:
            return None
        metadata = parse_metadata(payload)
    except WireError:
        return None
    if not metadata.HasField("chunk_id") or metadata.num_chunks_from_msg <= 1:
        return None
    return Chunk(metadata.uuid, metadata.chunk_id == metadata.num_chunks_from_msg - 1)


@dataclass(slots=True, eq=False)
class ChunkReceivers:
    """The receivers of chunks in one subscription."""

    # The consumer that is being sent its waiting chunks now.
    served: Consumer | None = None
    # Chunks whose consumer has no room.
    waiting: dict[Consumer, ReplayQueue] = field(default_factory=dict)
    # By message uuid, from its first chunk to its last. In the order of first chunks, so the first
    # key is the message that began longest ago.
    _receivers: dict[str, Consumer] = field(default_factory=dict, init=False)

    @property
    def waiting_count(self) -> int:
        """How many chunks wait."""
        return sum(map(len, self.waiting.values()))

    def receiver(self, chunk: Chunk, consumer: Consumer) -> Consumer:
        """The consumer that gets ``chunk``: the one with the other chunks of its message, else
        ``consumer``."""
        receivers = self._receivers
        receiver = receivers.setdefault(chunk.uuid, consumer)
        # A last chunk ends its message, also if it is the first that this dispatcher sees of it.
        if chunk.is_last:
            del receivers[chunk.uuid]
        elif len(receivers) > MESSAGES_MAX:
            del receivers[next(iter(receivers))]
        return receiver

    def wait(self, chunk: Chunk, position: EntryId, consumer: Consumer) -> None:
        """Let a chunk wait until ``consumer`` has room."""
        # With the last chunk, ``receiver`` forgot the message; but that chunk comes again, for the
        # same consumer.
        self._receivers[chunk.uuid] = consumer
        self.waiting.setdefault(consumer, ReplayQueue()).add(position)

    def left(self, consumer: Consumer) -> list[EntryId]:
        """``consumer`` has left: return the chunks that waited for it, which may go to others."""
        self._receivers = {
            uuid: each for uuid, each in self._receivers.items() if each is not consumer
        }
        return list(self.waiting.pop(consumer, ()))
