"""Publishes the broker's own messages to a topic, such as those of its health check.

These messages skip the steps that policies prescribe for messages of clients. The publisher is not
one of the topic's producers: an exclusive producer does not exclude it, nor the reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from geminga_broker.errors import BrokerError, StorageUnavailable
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, sequence_id_of
from geminga_broker.topics.part import OwningTopic

# Messages that may be pending: while bookies do not answer, they must not fill the broker's memory.
# The health check sends one message at a time, so that this is only reached when nothing is stored.
PENDING_MAX = 1000


@dataclass(slots=True, eq=False)
class InternalPublisher:
    """The broker as a publisher to one topic."""

    # What a ``Publisher`` shows of itself. Its messages have no sequence ids to deduplicate by.
    name = "broker"
    is_chunking = False
    is_numbering = False
    entries_taken = 0

    topic: OwningTopic
    # Takes requests to the log. Raises what the log raises; then it took nothing.
    append: Callable[[Sequence[AppendRequest]], None]
    _numbers: Iterator[int] = field(default_factory=count, init=False)
    # By the number of a message: the caller that waits for it, and its size in bytes.
    _pending: dict[int, tuple[asyncio.Future[Position], int]] = field(
        default_factory=dict[int, tuple[asyncio.Future[Position], int]], init=False
    )

    async def publish(self, payload: bytes, messages: int = 1) -> Position:
        """Append ``payload``, which holds ``messages`` messages, and return its position once it is
        durable.

        Raises what the log raises (``TopicFenced``, ``TopicTerminated``, ``NotAllowed``),
        ``TopicFenced`` if the topic closes meanwhile, and ``StorageUnavailable`` if too many
        messages are pending.
        """
        if len(self._pending) >= PENDING_MAX:
            raise StorageUnavailable(f"{PENDING_MAX} messages before it are not stored yet")
        # Its own numbers, by which ``confirm`` finds the caller; the log does not compare them. It
        # travels in the place of the sequence id. From here to ``append`` nothing is awaited.
        number = next(self._numbers)
        stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._pending[number] = stored, len(payload)
        try:
            # A topic that closes has failed its pending requests: it would never answer this one.
            self.topic.check_open()
            # May confirm at once: a topic without a log counts messages as durable when they are
            # taken.
            self.append([(payload, messages, self, number, 0)])
        except BaseException:
            # The log did not take it, and so will never confirm it.
            del self._pending[number]
            raise
        # A caller that is cancelled here leaves its entry; ``confirm`` removes it and finds the
        # future done.
        return await stored

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        """Return the positions of these messages to the callers that wait for them."""
        messages = size_bytes = 0
        # Also for messages whose callers were told of an error by ``fail_all``: they are durable
        # all the same, and count.
        for (entry_id, _, _), (_, count_of, _, number, _) in zip(entries, requests, strict=True):
            stored, payload_bytes = self._pending.pop(number, (None, 0))
            # The caller may have been cancelled, or told that the topic closes.
            if stored is not None and not stored.done():
                stored.set_result(Position(ledger_id, entry_id))
            messages += count_of or 1
            size_bytes += payload_bytes
        return messages, size_bytes

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Raise ``error`` for the caller that waits for this message."""
        # Forgotten at once: a later confirmation of this number finds no caller.
        stored, _ = self._pending.pop(sequence_id_of(request))
        if not stored.done():
            stored.set_exception(error)

    def fail_all(self, error: BrokerError) -> None:
        """Raise ``error`` for all callers that wait. Their messages may still become durable."""
        waiting = list(self._pending.values())
        # Forgotten, as in ``fail``.
        self._pending.clear()
        for stored, _ in waiting:
            if not stored.done():
                stored.set_exception(error)
