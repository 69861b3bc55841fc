"""How far a reader is in one topic: where it begins, and what it has read since.

Decides what a broker is told and what is left out of what it sends; keeps no message.
"""

from __future__ import annotations

from typing import Any

from geminga.message_ids import EARLIEST, LATEST, MessageId, from_proto, to_proto
from geminga.messages import Message
from geminga_protocol.pulsar.api_pb2 import CommandGetLastMessageIdResponse, MessageIdData


class ReadPosition:
    """The place behind which, or at which (``is_inclusive``), the next message is.

    A broker forgets a reader with its connection. When it attaches again, the reader says what it
    has read last. A broker takes an entry to be read as a whole, unless the id has a place in a
    batch: then it sends the batch again, and what was read of it is left out here.
    """

    def __init__(self, start: MessageId, *, is_inclusive: bool) -> None:
        self._start = start
        self._is_inclusive = is_inclusive
        self._last: Message[Any] | None = None
        # Only the broker knows where the end was, or what was published at a time.
        self._is_the_brokers = start == LATEST
        # Moved to that publish time. The broker that knew where this is may be gone, also before
        # the reader has attached again after the move: then all comes from the first message on.
        self._since_ms: int | None = None

    def moved(self, to: MessageId | int) -> ReadPosition:
        """The position after a seek to a message or a publish time."""
        if isinstance(to, MessageId):
            return ReadPosition(to, is_inclusive=True)
        position = ReadPosition(EARLIEST, is_inclusive=True)
        position._is_the_brokers = True
        position._since_ms = to
        return position

    def take(self, message: Message[Any]) -> None:
        """A message was read."""
        self._last = message

    @property
    def looks_for_time(self) -> bool:
        """Whether it leaves out what was published before the time that it was moved to."""
        return self._since_ms is not None and self._last is None

    def start_message_id(self) -> MessageIdData:
        """What a broker is told when the reader attaches."""
        if self._last is not None:
            return to_proto(self._last.id)
        start = self._start
        if self._is_inclusive and start.batch_index < 0 and 0 <= start.entry_id < LATEST.entry_id:
            # The entry before, whether there is one or not.
            return to_proto(MessageId(start.ledger_id, start.entry_id - 1))
        return to_proto(start)

    def is_past(self, message: Message[Any]) -> bool:
        """Was a message that comes read before, or does it lie before the start?"""
        if self._last is not None:
            last = self._last
            return _place(message) <= _place(last)
        if self._since_ms is not None:
            return message.publish_time_ms < self._since_ms
        if self._start == LATEST:
            return False
        if self._start.batch_index < 0:  # the id of an entry means all messages in it
            is_before = message.position < self._start.position
            is_at = message.position == self._start.position
        else:
            is_before = _place(message) < _place(self._start)
            is_at = _place(message) == _place(self._start)
        return is_before or (is_at and not self._is_inclusive)

    def has_more(self, answer: CommandGetLastMessageIdResponse) -> bool:
        """Is there something to read, where a broker says this about the last message?"""
        last = from_proto(answer.last_message_id)
        if last.entry_id < 0:
            return False
        if self._last is not None:
            return _place(last) > _place(self._last)
        if self._is_the_brokers:
            if not answer.HasField("consumer_mark_delete_position"):
                return False
            return last.position > from_proto(answer.consumer_mark_delete_position).position
        begin, end = _place(self._start), _place(last)
        if self._start.batch_index < 0:
            begin, end = (*self._start.position, -1), (*last.position, -1)
        return end > begin or (end == begin and self._is_inclusive)


def _place(message: Message[Any] | MessageId) -> tuple[int, int, int]:
    return (*message.position, message.batch_index)
