"""Batches: which messages leave together, and how they are numbered. Pure: nothing is sent here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from geminga.errors import ClientError
from geminga.message_ids import MessageId
from geminga.producers.outgoing.attributes import MessageAttributes

# Called once for a message: with its id, or with the error that came instead.
SendCallback = Callable[[MessageId | None, ClientError | None], None]

# What a message in a batch takes beyond its payload and attributes, at most: the size of its
# metadata (4 bytes), payload size (1 + 5) and sequence id (1 + 10).
SINGLE_OVERHEAD_BYTES = 21


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch leaves: as soon as one of the limits is reached.

    They are ``messages_max`` messages, ``bytes_max`` bytes (of payloads, keys and properties,
    before compression) and ``delay_s`` seconds since the first message of the batch; but a batch
    with a message that is awaited (``send``) leaves at the end of the loop's turn. ``by_key`` makes
    a batch for each key, as Key_Shared subscriptions need it: they deliver a batch as a whole to
    one consumer. Raises ``ValueError`` for limits that cannot be.
    """

    # As upstream's clients: enough to make the cost of an entry small against that of its messages.
    messages_max: int = 1000
    bytes_max: int = 128 * 1024
    delay_s: float = 0.001
    by_key: bool = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        if self.messages_max < 1 or self.bytes_max < 1:
            raise ValueError("messages_max and bytes_max of batches are 1 at least")
        if self.delay_s < 0:
            raise ValueError(f"delay_s of batches is 0 at least, and not {self.delay_s}")


@dataclass(slots=True)
class Batch:
    """Messages that leave together, as one payload.

    ``payload_bytes`` counts payloads and attributes. ``attributes`` are those of the first
    message, ``encoded_attributes`` those of each, without what only a message alone can have.
    """

    attributes: MessageAttributes | None
    payloads: list[bytes] = field(default_factory=list[bytes])
    encoded_attributes: list[bytes] = field(default_factory=list[bytes])
    # Of those messages that have one, by their indexes.
    callbacks: list[tuple[int, SendCallback]] = field(
        default_factory=list[tuple[int, SendCallback]]
    )
    payload_bytes: int = 0
    # Their sequence ids, where the producer's user gave some; else consecutive ones.
    sequence_ids: list[int] | None = None
    # Of a message in chunks: how many receipts are awaited, the id of the first chunk, and the
    # first error of one.
    is_chunked: bool = False
    num_sends: int = 1
    first_chunk: MessageId | None = None
    error: ClientError | None = None

    def __len__(self) -> int:
        return len(self.payloads)


class OpenBatches:
    """The batches of one producer that have not left yet: one, or one for each key.

    Messages are numbered when they leave. By keys, each batch so has consecutive sequence ids, and
    a topic that deduplicates takes none for a repetition of another batch's.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._batches: dict[str | bytes | None, Batch] = {}
        # What is left of the limits, set by ``begin``.
        self._free_messages = 0
        self._free_bytes = 0
        self._newest: Batch | None = None
        # The one batch of plain messages, as long as nothing but its limits keeps any out.
        self._plain: Batch | None = None

    def begin(self, bytes_max: int) -> None:
        """Begin anew, where ``is_empty``; ``bytes_max`` is what the broker takes."""
        assert self.is_empty
        self._free_messages = self._batching.messages_max
        self._free_bytes = min(bytes_max, self._batching.bytes_max)

    @property
    def is_empty(self) -> bool:
        """Is no batch open?"""
        return not self._batches

    def has_room(self, message_bytes: int) -> bool:
        """May one more message, of so many bytes with its attributes, leave with these?

        The first one always may.
        """
        return not self._batches or message_bytes + SINGLE_OVERHEAD_BYTES <= self._free_bytes

    def may_be_numbered(self, sequence_id: int) -> bool:
        """May a message with a sequence id of its user's choice leave with these?

        Sequence ids within a batch go up. Batches of several keys are numbered when they leave, as
        are those that began without such a message.
        """
        if self._newest is None:
            return True
        ids = self._newest.sequence_ids
        return not self._batching.by_key and ids is not None and ids[-1] < sequence_id

    @property
    def is_full(self) -> bool:
        """Do they leave now, whatever comes next?"""
        return self._free_messages <= 0 or self._free_bytes <= 0

    def add(
        self,
        payload: bytes,
        attributes: MessageAttributes | None,
        encoded_attributes: bytes,
        callback: SendCallback | None,
        sequence_id: int | None,
    ) -> None:
        """Put a message into its batch. ``has_room`` and ``may_be_numbered`` were asked."""
        batch = self._newest
        if batch is None or self._batching.by_key:
            batch = self._batch_for(attributes)
        if callback is not None:
            batch.callbacks.append((len(batch.payloads), callback))
        if batch.sequence_ids is not None:
            following = batch.sequence_ids[-1] + 1
            batch.sequence_ids.append(following if sequence_id is None else sequence_id)
        elif sequence_id is not None:
            assert not batch.payloads, "its first messages are not numbered yet"
            batch.sequence_ids = [sequence_id]
        batch.payloads.append(payload)
        batch.encoded_attributes.append(encoded_attributes)
        payload_bytes = len(payload) + len(encoded_attributes)
        batch.payload_bytes += payload_bytes
        self._free_messages -= 1
        self._free_bytes -= payload_bytes + SINGLE_OVERHEAD_BYTES
        self._plain = None if self._batching.by_key or batch.sequence_ids is not None else batch

    def add_plain(self, payload: bytes, callback: SendCallback | None) -> bool:
        """Put a message without attributes into the open batch, if there is one with room for it.

        That is how most messages go, and takes 0.3 us instead of 0.9 (CPython 3.11).
        """
        batch = self._plain
        free_bytes = self._free_bytes - len(payload) - SINGLE_OVERHEAD_BYTES
        if batch is None or free_bytes <= 0 or self._free_messages <= 1:
            return False
        self._free_bytes = free_bytes
        self._free_messages -= 1
        if callback is not None:
            batch.callbacks.append((len(batch.payloads), callback))
        batch.payload_bytes += len(payload)
        batch.payloads.append(payload)
        batch.encoded_attributes.append(b"")
        return True

    def take(self) -> list[Batch]:
        """The batches, in the order of their first messages; none are open afterwards."""
        taken = list(self._batches.values())
        self._batches = {}
        self._newest = self._plain = None
        return taken

    def _batch_for(self, attributes: MessageAttributes | None) -> Batch:
        by_key = self._batching.by_key and attributes is not None
        key = attributes.batch_key if by_key and attributes is not None else None
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch(attributes)
        self._newest = batch
        return batch


def number(batch: Batch, next_sequence_id: int) -> Sequence[int]:
    """The sequence ids of a batch that leaves: its user's, else the next ones."""
    if batch.sequence_ids is not None:
        return batch.sequence_ids
    return range(next_sequence_id, next_sequence_id + len(batch.payloads))
