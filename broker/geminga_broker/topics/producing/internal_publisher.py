"""Publishes the broker's own messages to a topic, such as those of its health check.

These messages skip the steps that policies prescribe for messages of clients. The publisher is not
among the topic's producers: an exclusive producer does not exclude it, nor does it exclude one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from geminga_broker.errors import BrokerError, StorageUnavailable
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, sequence_id_of

# Messages that may be pending: while bookies are away, they must not fill the broker's memory.
UNDER_WAY_MAX = 1000


class InternalPublisher:
    """The broker as a publisher to one topic, whose ``append`` takes requests to the log."""

    __slots__ = ("_append", "_numbers", "_under_way")

    name = "broker"
    is_chunking = False
    is_numbering = False
    entries_taken = 0

    def __init__(self, append: Callable[[Sequence[AppendRequest]], None]) -> None:
        self._append = append
        self._numbers = count()
        # The caller that waits for a message, and the size of the message, by its number.
        self._under_way: dict[int, tuple[asyncio.Future[Position], int]] = {}

    async def publish(self, payload: bytes, messages: int = 1) -> Position:
        """Append ``payload``, which holds so many messages; its position, once it is durable.

        Raises what the log raises (``TopicFenced``, ``TopicTerminated``, ``NotAllowed``),
        ``TopicFenced`` if the topic closes meanwhile, and ``StorageUnavailable`` if too many
        messages are pending.
        """
        if len(self._under_way) >= UNDER_WAY_MAX:
            raise StorageUnavailable(f"{UNDER_WAY_MAX} messages before it are not stored yet")
        number = next(self._numbers)
        stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._under_way[number] = stored, len(payload)
        try:
            self._append([(payload, messages, self, number, 0)])
        except BaseException:
            del self._under_way[number]
            raise
        return await stored

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        """Return the positions of these messages to the callers that wait for them."""
        messages = size_bytes = 0
        for (entry_id, _, _), (_, told, _, number, _) in zip(entries, requests, strict=True):
            stored, payload_bytes = self._under_way.pop(number, (None, 0))
            if stored is not None and not stored.done():  # else the caller was cancelled
                stored.set_result(Position(ledger_id, entry_id))
            messages += told or 1
            size_bytes += payload_bytes
        return messages, size_bytes

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Raise ``error`` for the caller that waits for this message."""
        self._fail(sequence_id_of(request), error)

    def fail_all(self, error: BrokerError) -> None:
        """Raise ``error`` for all callers that wait. Pending messages may still become durable."""
        for number in list(self._under_way):
            self._fail(number, error)

    def _fail(self, number: int, error: BrokerError) -> None:
        stored, _ = self._under_way.pop(number)
        if not stored.done():
            stored.set_exception(error)
