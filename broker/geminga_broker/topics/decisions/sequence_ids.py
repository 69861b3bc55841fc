"""The sequence ids by which a topic recognizes messages that it has stored already. Pure.

The rules are upstream's (``MessageDeduplication``). The numbers of a producer's messages grow. A
batch is compared by its lowest number and remembered by its highest. Of a message in chunks only
the last chunk counts. A message that is pending can still be lost: whether another one of its
number is a repeat cannot be decided yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    payload_of,
    publisher_of,
)
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.integers import signed
from geminga_protocol.pulsar.messages.payload import parse_metadata

NO_SEQUENCE_ID = -1
# A snapshot is stored in one entry, together with the rest of a cursor; names may be long. The
# entry has room for 5 MB, and a cursor's own ranges take their part of it.
SNAPSHOT_BYTES_MAX = 2 * 1024 * 1024
# What a number takes besides its producer's name: tags, lengths, and the number itself.
NUMBER_BYTES = 20


class Verdict(Enum):
    """Whether a message is a repeat."""

    NEW = "new"
    STORED = "stored"
    UNKNOWN = "unknown"
    """A message of its number is pending, and may be stored or lost."""


# For each producer, by number:
#
#     ... stored ...│... pending ...│... new ...
#                   ▲               ▲
#               _stored          _taken      (upstream's highestSequencedPersisted, ...Pushed)
#
# A message above ``_taken`` is new. Of the others, one at or below ``_stored`` is a repeat; in
# between its fate is not known yet: it may still be lost with the ledger that it was sent to.
@dataclass(slots=True, eq=False)
class SequenceIds:
    """The highest numbers of each producer: sent, and stored.

    Producers that are not connected are kept until ``forget_idle``.
    """

    # By producer name. ``_taken`` is ahead of ``_stored`` while messages are pending.
    _taken: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _stored: dict[str, int] = field(default_factory=dict[str, int], init=False)
    # Since when producers are not connected, in seconds of the monotonic clock. Those that are
    # connected are not in it, and so never forgotten.
    _idle_since_s: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def last_of(self, name: str) -> int:
        """The last number that this producer has sent; -1 for an unknown producer."""
        return self._taken.get(name, NO_SEQUENCE_ID)

    def has_pending(self, name: str) -> bool:
        """Whether messages of this producer are pending."""
        return self.last_of(name) > self._stored.get(name, NO_SEQUENCE_ID)

    # Publishing

    def all_new(self, name: str, items: Sequence[AppendRequest]) -> int | None:
        """The highest number of a run without chunks, if all its messages are new; None if some are
        not, so that they must be judged one by one."""
        # HOT: one pass over the run.
        last = self._taken.get(name)
        for _, _, _, sequence_id, highest in items:
            # Protobuf's uint64 on the wire, but Java's clients count in signed longs.
            number = signed(sequence_id)
            if last is not None and number <= last:
                return None
            # Compared with the one before it in the run, too: the numbers must grow within it.
            last = max(number, signed(highest)) if highest else number
        return last

    def judge(self, name: str, sequence_id: int) -> Verdict:
        """Whether a message with this (lowest) number is a repeat."""
        number = signed(sequence_id)
        # Compared with what was taken, not with what is stored: the next run is judged while this
        # one is pending. After a broker has restored a snapshot both are equal: nothing was pending
        # then.
        if name not in self._taken or number > self._taken[name]:
            return Verdict.NEW
        stored = self._stored.get(name)
        return Verdict.STORED if stored is not None and number <= stored else Verdict.UNKNOWN

    def taken(self, name: str, number: int) -> None:
        """Messages up to ``number`` were handed to the log."""
        # Only when the log has taken them: of a run that it refuses, no number counts.
        self._taken[name] = number

    def found_pending(self, request: AppendRequest, now_s: float) -> None:
        """An entry was handed to the log before deduplication was turned on."""
        publisher = publisher_of(request)
        # The last one in the log counts, not the highest, as in ``stored``: these numbers need not
        # grow. If the two ended with different numbers, ``has_pending`` would never end.
        if not publisher.is_chunking or completes_message(payload_of(request)):
            self.taken(publisher.name, highest_of(request))
            # The producer may have left. ``connected`` follows for those that have not.
            self._idle_since_s[publisher.name] = now_s

    def stored(self, name: str, items: Iterable[AppendRequest], *, is_chunking: bool) -> None:
        """Messages of one producer are durable."""
        # In the order of the log, so that the last one has the highest number.
        for item in items:
            if not is_chunking or completes_message(payload_of(item)):
                self._stored[name] = highest_of(item)

    # Snapshots

    def restore(self, numbers: Mapping[str, int], now_s: float) -> None:
        """Take over numbers that an earlier owner stored, of producers that are not connected."""
        # Idle from now on, so that a producer which never comes back is forgotten in the end.
        for name, number in numbers.items():
            self._taken[name] = self._stored[name] = number
            self._idle_since_s[name] = now_s

    def snapshot(self, producers_max: int) -> dict[str, int]:
        """The numbers of stored messages by name, of at most ``producers_max`` producers and
        ``SNAPSHOT_BYTES_MAX`` bytes."""
        # Those that were stored first stay: a producer beyond the limits is not deduplicated across
        # restarts. In the order of the dictionary, in which a producer keeps its place while its
        # number grows. The rest of the topic's producers is then known in memory only.
        kept: dict[str, int] = {}
        room_bytes = SNAPSHOT_BYTES_MAX
        for name, number in self._stored.items():
            room_bytes -= len(name.encode()) + NUMBER_BYTES
            if len(kept) >= producers_max or room_bytes < 0:
                break
            kept[name] = number
        return dict(sorted(kept.items()))

    def connected(self, name: str) -> None:
        """A producer of this name has connected: keep its numbers."""
        self._idle_since_s.pop(name, None)

    def disconnected(self, name: str, now_s: float) -> None:
        """The producer of this name has left."""
        self._idle_since_s[name] = now_s

    def forget_idle(self, since_s: float) -> bool:
        """Forget producers that left before ``since_s``; True if there were any."""
        idle = [name for name, idle_s in self._idle_since_s.items() if idle_s < since_s]
        for name in idle:
            del self._idle_since_s[name]
            # A producer that was connected and never sent a message is in neither.
            self._taken.pop(name, None)
            self._stored.pop(name, None)
        return bool(idle)


def highest_of(item: AppendRequest) -> int:
    """The number by which an entry is remembered: that of the last message in it."""
    _, _, _, sequence_id, highest = item
    return max(signed(sequence_id), signed(highest)) if highest else signed(sequence_id)


def completes_message(payload: bytes) -> bool:
    """Whether an entry is a whole message, or the last chunk of one; all chunks have its number."""
    try:
        # Only asked for producers that send chunks, as it parses each message.
        return _is_complete(parse_metadata(payload))
    except WireError:
        return True


def number_of_stored(metadata: MessageMetadata) -> tuple[str, int] | None:
    """The producer and the number in a stored entry; None for markers and incomplete chunks."""
    # Markers are the broker's own (replicated subscriptions), with a producer name and no number
    # that means anything.
    if metadata.HasField("marker_type") or not _is_complete(metadata):
        return None
    number = max(signed(metadata.sequence_id), signed(metadata.highest_sequence_id))
    return metadata.producer_name, number


def _is_complete(metadata: MessageMetadata) -> bool:
    if not metadata.HasField("chunk_id"):
        return True
    return metadata.chunk_id == metadata.num_chunks_from_msg - 1
