"""How far a reader is in one topic: where it began, and which message it took last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from geminga.message_ids import EARLIEST, LATEST, MessageId, from_proto, to_proto
from geminga.messages import Message
from geminga_protocol.pulsar.api_pb2 import CommandGetLastMessageIdResponse, MessageIdData


@dataclass(slots=True, eq=False, kw_only=True)
class ReadPosition:
    """Where the next message is: behind ``start``, or with ``is_inclusive`` at it.

    A broker forgets a reader with its connection, so the reader says at each attachment which
    message it took last. For the broker an entry was read as a whole, unless the id has a batch
    index: then it sends the batch again, and ``is_past`` leaves out what was read of it.
    """

    start: MessageId
    is_inclusive: bool
    # The publish time to which the reader was moved, in milliseconds since 1970. The broker that
    # found its place may be gone before the reader has attached again after the move: then messages
    # come from the first one on, and those from before that time are left out here.
    since_ms: int | None = None
    # The message that was taken last, since the start or since the last move; set by the owner.
    last: Message[Any] | None = field(default=None, init=False)

    def moved(self, to: MessageId | int) -> ReadPosition:
        """The position after a seek to a message or a publish time."""
        if isinstance(to, MessageId):
            return ReadPosition(start=to, is_inclusive=True)
        return ReadPosition(start=EARLIEST, is_inclusive=True, since_ms=to)

    def start_message_id(self) -> MessageIdData:
        """The id behind which a broker is to begin, when the reader attaches."""
        # What was taken says more than the start: the start is long past by then.
        if self.last is not None:
            return to_proto(self.last.id)
        start = self.start
        # A broker begins behind the id that it is given, so that the first entry wanted is named by
        # the one before it.
        if self.is_inclusive and start.batch_index < 0 and 0 <= start.entry_id < LATEST.entry_id:
            # Behind the entry before it, whether there is such an entry or not.
            return to_proto(MessageId(start.ledger_id, start.entry_id - 1))
        return to_proto(start)

    def is_past(self, message: Message[Any]) -> bool:
        """Was a message read before, or does it lie before the start?"""
        if self.last is not None:
            last = self.last
            return _place(message) <= _place(last)
        if self.since_ms is not None:
            return message.publish_time_ms < self.since_ms
        if self.start == LATEST:
            return False  # the broker knew where that was
        if self.start.batch_index < 0:  # the id of an entry means all messages in it
            is_before = message.position < self.start.position
            is_at = message.position == self.start.position
        else:
            is_before = _place(message) < _place(self.start)
            is_at = _place(message) == _place(self.start)
        return is_before or (is_at and not self.is_inclusive)

    def has_more(self, answer: CommandGetLastMessageIdResponse) -> bool:
        """Is there a message to read, if this is a broker's answer about the last message?"""
        last = from_proto(answer.last_message_id)
        if last.entry_id < 0:
            return False  # the topic has no message
        if self.last is not None:
            return _place(last) > _place(self.last)
        if self.start == LATEST or self.since_ms is not None:
            # Where that was, the broker alone knows: it has as acknowledged everything before the
            # place that it found.
            if not answer.HasField("consumer_mark_delete_position"):
                return False
            return last.position > from_proto(answer.consumer_mark_delete_position).position
        begin, end = _place(self.start), _place(last)
        if self.start.batch_index < 0:
            # Both without their batch index, or a start that is an entry would lie before each
            # message in it.
            begin, end = (*self.start.position, -1), (*last.position, -1)
        return end > begin or (end == begin and self.is_inclusive)


def _place(message: Message[Any] | MessageId) -> tuple[int, int, int]:
    """What messages of one topic are compared by."""
    return (*message.position, message.batch_index)
