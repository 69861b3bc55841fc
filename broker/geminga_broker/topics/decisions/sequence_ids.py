"""The sequence ids by which a topic knows a message that it has already. Pure.

The rules are upstream's (``MessageDeduplication``): each producer's messages are numbered upwards;
a batch is compared by its lowest number and remembered by its highest; of a message in chunks only
the last chunk counts. What was taken but is not stored yet can still get lost: whether a message
of such a number is a repeat cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from geminga_broker.managed_ledger.append_request import AppendRequest, payload_of
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.integers import signed
from geminga_protocol.pulsar.payload import parse_metadata

NO_SEQUENCE_ID = -1
# A snapshot is one entry of a bookie, together with the rest of a cursor; names may be long.
SNAPSHOT_BYTES_MAX = 2 * 1024 * 1024
# What a number takes beside its producer's name: tags, lengths, and the number itself.
NUMBER_BYTES = 20


class Verdict(Enum):
    """What a message is to the topic."""

    NEW = "new"
    STORED = "stored"
    UNKNOWN = "unknown"
    """One of its number is under way, and may be stored or lost."""


class SequenceIds:
    """The highest number that each producer has sent, and the highest of which it is stored.

    Producers that are not connected are known until ``forget_idle``.
    """

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        # Since when producers are not connected, in seconds of the monotonic clock.
        self._idle_since_s: dict[str, float] = {}

    def last_of(self, name: str) -> int:
        """The last number that this producer has sent; -1 for one that is not known."""
        return self._taken.get(name, NO_SEQUENCE_ID)

    def is_under_way(self, name: str) -> bool:
        """Whether anything of this producer was taken and is not stored yet."""
        return self.last_of(name) > self._stored.get(name, NO_SEQUENCE_ID)

    # Publishing

    def all_new(self, name: str, items: Sequence[AppendRequest]) -> int | None:
        """The highest number of a run without chunks in which everything is new; None where
        something is not, and has to be looked at one by one."""
        last = self._taken.get(name)
        for _, _, _, sequence_id, highest in items:
            number = signed(sequence_id)
            if last is not None and number <= last:
                return None
            last = max(number, signed(highest)) if highest else number
        return last

    def judge(self, name: str, sequence_id: int) -> Verdict:
        """What a message with this (lowest) number is."""
        number = signed(sequence_id)
        if name not in self._taken or number > self._taken[name]:
            return Verdict.NEW
        stored = self._stored.get(name)
        return Verdict.STORED if stored is not None and number <= stored else Verdict.UNKNOWN

    def taken(self, name: str, number: int) -> None:
        """Messages up to ``number`` are on their way."""
        self._taken[name] = number

    def stored(self, name: str, items: Iterable[AppendRequest], *, is_chunking: bool) -> None:
        """These of one producer are durable."""
        for item in items:
            if not is_chunking or completes_message(payload_of(item)):
                self._stored[name] = highest_of(item)

    # Keeping

    def restore(self, numbers: Mapping[str, int], now_s: float) -> None:
        """What an earlier life of the topic stored of producers, who are not connected yet."""
        for name, number in numbers.items():
            self._taken[name] = self._stored[name] = number
            self._idle_since_s[name] = now_s

    def snapshot(self, producers_max: int) -> dict[str, int]:
        """The numbers of what is stored, by name, of so many producers and so many bytes."""
        kept: dict[str, int] = {}
        room_bytes = SNAPSHOT_BYTES_MAX
        for name, number in self._stored.items():
            room_bytes -= len(name.encode()) + NUMBER_BYTES
            if len(kept) >= producers_max or room_bytes < 0:
                break
            kept[name] = number
        return dict(sorted(kept.items()))

    def connected(self, name: str) -> None:
        """A producer of this name is here."""
        self._idle_since_s.pop(name, None)

    def disconnected(self, name: str, now_s: float) -> None:
        """It has gone."""
        self._idle_since_s[name] = now_s

    def forget_idle(self, since_s: float) -> bool:
        """Forget who has been away since before then; whether there was any."""
        gone = [name for name, idle_s in self._idle_since_s.items() if idle_s < since_s]
        for name in gone:
            del self._idle_since_s[name]
            self._taken.pop(name, None)
            self._stored.pop(name, None)
        return bool(gone)


def highest_of(item: AppendRequest) -> int:
    """The number by which an entry is remembered: of a batch the last one's."""
    _, _, _, sequence_id, highest = item
    return max(signed(sequence_id), signed(highest)) if highest else signed(sequence_id)


def completes_message(payload: bytes) -> bool:
    """Whether it is no chunk of a message or its last one; all chunks bear the same number."""
    try:
        return _is_complete(parse_metadata(payload))
    except WireError:
        return True


def number_of_stored(metadata: MessageMetadata) -> tuple[str, int] | None:
    """Producer and number that a stored entry tells of; None for one that tells of none."""
    if metadata.HasField("marker_type") or not _is_complete(metadata):
        return None
    number = max(signed(metadata.sequence_id), signed(metadata.highest_sequence_id))
    return metadata.producer_name, number


def _is_complete(metadata: MessageMetadata) -> bool:
    if not metadata.HasField("chunk_id"):
        return True
    return metadata.chunk_id == metadata.num_chunks_from_msg - 1
