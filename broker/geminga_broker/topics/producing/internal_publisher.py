"""Publishes the broker's own messages to a topic: its health checks, what it has to note or mark.

They go to the log past the steps that policies put in the way of clients' messages, and the broker
is none of the topic's producers: no access mode and no limit keeps it out, and it keeps nobody out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from geminga_broker.errors import BrokerError, StorageUnavailable
from geminga_broker.log.append_request import AppendRequest, sequence_id_of
from geminga_broker.log.positions import Entry, Position

# Messages that may be on their way: a broker that goes on while bookies are away must not fill its
# memory.
UNDER_WAY_MAX = 1000


class InternalPublisher:
    """Publishes to the topic that has this ``append``."""

    __slots__ = ("_append", "_numbers", "_under_way")

    name = "broker"
    is_chunking = False
    is_numbering = False

    def __init__(self, append: Callable[[Sequence[AppendRequest]], None]) -> None:
        self._append = append
        self._numbers = count()
        # Who waits for a message, and its size, by the number that it was given.
        self._under_way: dict[int, tuple[asyncio.Future[Position], int]] = {}

    async def publish(self, payload: bytes, messages: int = 1) -> Position:
        """Store ``payload``; the position where it is, once it is durable.

        Raises what the log raises (``TopicFenced``, ``TopicTerminated``, ``NotAllowed``),
        ``TopicFenced`` also where the topic ends first, and ``StorageUnavailable`` where too many
        are under way.
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
        """Tell those who wait for these messages where they are."""
        messages = size_bytes = 0
        for (entry_id, _, _), (_, told, _, number, _) in zip(entries, requests, strict=True):
            stored, payload_bytes = self._under_way.pop(number, (None, 0))
            if stored is not None and not stored.done():  # else nobody waits for it any more
                stored.set_result(Position(ledger_id, entry_id))
            messages += told or 1
            size_bytes += payload_bytes
        return messages, size_bytes

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Tell who waits for this message why it is not stored."""
        self._fail(sequence_id_of(request), error)

    def fail_all(self, error: BrokerError) -> None:
        """The topic ends: whether messages under way will be stored is not known."""
        for number in list(self._under_way):
            self._fail(number, error)

    def _fail(self, number: int, error: BrokerError) -> None:
        stored, _ = self._under_way.pop(number)
        if not stored.done():
            stored.set_exception(error)
