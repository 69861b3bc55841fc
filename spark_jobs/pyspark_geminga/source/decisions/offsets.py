"""Offsets: up to where a query has read each topic, as JSON in Spark's checkpoints.

Version 1, of this source. A position is the NEXT message to read, so that ranges are half-open:

    {"v": 1,
     "p":    {topic: [ledger, entry, batch index or -1, message index or null], ...},
     "from": {topic: [...]},              where this batch begins, where the batch before has no "p"
     "plan": {topic: [[ledger, entry], ...]},  where this batch's range is cut into splits
     "gone": [topic, ...],                deleted topics, which are no longer read
     "initial": true}                     a start that is in no checkpoint yet

Keys that are empty are left out. Version 0 is the Java connector's: ``{topic: [bytes, ...]}``,
signed bytes of a protobuf ``MessageIdData`` that names the LAST message that was read.

Spark compares offsets as text: what means the same has to be the same bytes, so keys are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from geminga import ClientError, LogPosition, MessageId
from pyspark_geminga.errors import InvalidOffset

VERSION = 1
# Java's MessageId.latest has it in both numbers.
INT64_MAX = 2**63 - 1

ValueT = TypeVar("ValueT")


class Place(NamedTuple):
    """A position, and how many messages the topic had before it, where brokers count them."""

    # The next message to read. For a position behind everything it is that of a message to come.
    position: LogPosition
    message_index: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Up to where each topic was, or is to be, read; topics are partitions' whole names.

    An offset is the end of one batch and the start of the next. It is written before its batch
    runs, so that a batch that is repeated after a restart reads the same ranges in the same splits.
    """

    # Of all topics that the query knows, not only of those that the batch reads: Spark gives the
    # next batch nothing but this offset.
    places: Mapping[str, Place]
    # Where the batch begins in topics that the offset before does not have, or has only from an
    # ``initialOffset``, which is computed again after a restart and may then lie elsewhere.
    starts: Mapping[str, Place] = field(default_factory=dict[str, Place])
    # Where the range of each topic is cut into splits.
    cuts: Mapping[str, tuple[LogPosition, ...]] = field(
        default_factory=dict[str, tuple[LogPosition, ...]]
    )
    gone: tuple[str, ...] = ()  # deleted topics, which later offsets do not have
    is_initial: bool = False  # a query without a checkpoint begins here

    def to_json(self) -> dict[str, object]:
        """The JSON object of version 1; equal offsets have equal text."""
        # Empty keys are left out, so that an offset has one text only.
        document: dict[str, object] = {"v": VERSION, "p": _sorted(self.places, _place_json)}
        if self.starts:
            document["from"] = _sorted(self.starts, _place_json)
        if self.cuts:
            document["plan"] = _sorted(self.cuts, lambda cuts: [[*each[:2]] for each in cuts])
        if self.gone:
            document["gone"] = sorted(self.gone)
        if self.is_initial:
            document["initial"] = True
        return document

    @classmethod
    def from_json(cls, document: object) -> SourceOffset:
        """The offset in a checkpoint, of either version. Unknown keys are ignored.

        Raises ``InvalidOffset``.
        """
        if not isinstance(document, dict):
            raise InvalidOffset(f"{document!r} is no offset: a JSON object is wanted")
        if "v" not in document:
            # Version 0 names the last message that was read. Entries are read whole, so that the
            # query goes on behind that entry, also where the id names one message of a batch.
            # Without cuts: the batch that such an offset ends is read in one part for each topic.
            places: dict[str, Place] = {}
            for topic, numbers in document.items():
                last = _message_id(_numbers(numbers))
                behind = LogPosition(last.ledger_id, last.entry_id + 1)
                if last.entry_id in {-1, INT64_MAX}:  # earliest, latest, or before the first entry
                    behind = LogPosition(last.ledger_id, -1 if last.ledger_id < 0 else 0)
                places[topic] = Place(behind)
            return cls(places)
        if document["v"] != VERSION:
            raise InvalidOffset(
                f"the checkpoint has offsets of version {document['v']!r}, and this release reads "
                f"versions up to {VERSION}: install the release that wrote it, or a newer one"
            )
        gone = document.get("gone", [])
        if not isinstance(gone, list):
            raise InvalidOffset(f"{gone!r} is no list of topics")
        return cls(
            _mapping(document.get("p"), _place),
            _mapping(document.get("from", {}), _place),
            _mapping(document.get("plan", {}), _cuts),
            tuple(map(str, gone)),
            bool(document.get("initial")),
        )

    def start_of(self, topic: str, before: SourceOffset) -> Place | None:
        """Where the batch that ends here begins in ``topic``; ``before`` is the batch's start.

        ``None`` for a topic that neither knows.
        """
        # This offset comes first: ``before`` may be an ``initialOffset`` that was computed again
        # after a restart, and lies elsewhere than the one with which the batch was planned.
        return self.starts.get(topic) or before.places.get(topic)


def parse_positions(document: object) -> dict[str, LogPosition]:
    """Positions by topic, out of what users give as ``startingOffsets`` (the first message that is
    read) or ``endingOffsets`` (the first message that is not read).

    Either ``{topic: [ledger, entry] or [ledger, entry, batch index]}``, or an offset of this
    source, or the Java connector's ``{topic: [bytes, ...]}`` with that message's id. Raises
    ``InvalidOffset``.
    """
    if isinstance(document, dict) and "v" in document:
        offset = SourceOffset.from_json(document)
        return {topic: place.position for topic, place in offset.places.items()}

    def position(value: object) -> LogPosition:
        numbers = _numbers(value)
        # Two or three numbers are a position: a message id in protobuf has four bytes or more.
        if len(numbers) in {2, 3}:
            return LogPosition(*numbers)
        given = _message_id(numbers)
        return LogPosition(given.ledger_id, given.entry_id, max(-1, given.batch_index))

    return _mapping(document, position)


def _message_id(numbers: Sequence[int]) -> MessageId:
    """The id in the Java connector's bytes, which are signed as Java's are."""
    try:
        return MessageId.from_bytes(bytes(number & 0xFF for number in numbers))
    except ClientError as error:
        raise InvalidOffset(f"{numbers!r} is neither a position nor a message id") from error


def _place_json(place: Place) -> list[int | None]:
    return [*place.position, place.message_index]


def _place(value: object) -> Place:
    if not isinstance(value, list) or len(value) != 4:
        raise InvalidOffset(f"{value!r} is not [ledger, entry, batch index, index or null]")
    index = None if value[3] is None else _numbers([value[3]])[0]
    return Place(LogPosition(*_numbers(value[:3])), index)


def _cuts(value: object) -> tuple[LogPosition, ...]:
    if not isinstance(value, list):
        raise InvalidOffset(f"{value!r} is no list of positions")
    pairs = [_numbers(each) for each in value]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidOffset(f"{value!r} has something that is not [ledger, entry]")
    return tuple(LogPosition(*pair) for pair in pairs)


def _numbers(value: object) -> list[int]:
    # ``type``, not ``isinstance``: JSON's true is an int to Python.
    if isinstance(value, list) and all(type(each) is int for each in value):
        return value
    raise InvalidOffset(f"{value!r} is no list of whole numbers")


def _mapping(value: object, read: Callable[[object], ValueT]) -> dict[str, ValueT]:
    if not isinstance(value, dict):
        raise InvalidOffset(f"{value!r} has no topics: a JSON object by topic is wanted")
    return {str(topic): read(each) for topic, each in value.items()}


def _sorted(values: Mapping[str, ValueT], write: Callable[[ValueT], object]) -> dict[str, object]:
    # By name, at any depth: the same offset has one text, whatever order planning had.
    return {topic: write(values[topic]) for topic in sorted(values)}
