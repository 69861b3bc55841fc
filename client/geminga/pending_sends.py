"""The messages that were sent and not yet confirmed, in their order.

Decides which receipt confirms what and what has waited too long; sends nothing itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from geminga.errors import ClientError
from geminga.message_ids import MessageId

# Called once for each message: with its id, or with the error that came instead.
SendCallback = Callable[[MessageId | None, ClientError | None], None]


@dataclass(frozen=True, slots=True)
class PendingSend:
    """One SEND: its frame in two pieces, kept to be sent again on another connection."""

    sequence_id: int
    head: bytes
    payload: bytes
    deadline_s: float
    callback: SendCallback


class ReceiptOutOfOrder(ClientError):
    """A receipt came for a later message than the oldest unconfirmed one."""


class PendingSends:
    """A queue of ``PendingSend``, bounded by ``messages_max`` and ``bytes_max``.

    Bytes are those of payloads. A message larger than ``bytes_max`` fits when it is alone.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._queue: deque[PendingSend] = deque()
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[PendingSend]:
        return iter(self._queue)

    def has_room(self, payload_bytes: int) -> bool:
        """May one more message of so many bytes be added?"""
        if not self._queue:
            return True
        return (
            len(self._queue) < self._messages_max
            and self.payload_bytes + payload_bytes <= self._bytes_max
        )

    def add(self, send: PendingSend) -> None:
        """Add the newest message."""
        self._queue.append(send)
        self.payload_bytes += len(send.payload)

    def confirm(self, sequence_id: int) -> PendingSend | None:
        """Take out the message that a receipt is for.

        ``None`` for a receipt that came late: its message was sent twice, or has timed out.
        Raises ``ReceiptOutOfOrder``: the broker lost the oldest message, all must be sent again.
        """
        if not self._queue or sequence_id < self._queue[0].sequence_id:
            return None
        if sequence_id > self._queue[0].sequence_id:
            raise ReceiptOutOfOrder(
                f"message {sequence_id} was confirmed before {self._queue[0].sequence_id}"
            )
        return self._take()

    def expire(self, now_s: float) -> list[PendingSend]:
        """Take out the messages whose deadline has come."""
        expired: list[PendingSend] = []
        while self._queue and self._queue[0].deadline_s <= now_s:
            expired.append(self._take())
        return expired

    @property
    def deadline_s(self) -> float | None:
        """When the oldest message times out; ``None`` without messages."""
        return self._queue[0].deadline_s if self._queue else None

    def take_all(self) -> list[PendingSend]:
        """Take out everything."""
        taken = list(self._queue)
        self._queue.clear()
        self.payload_bytes = 0
        return taken

    def _take(self) -> PendingSend:
        send = self._queue.popleft()
        self.payload_bytes -= len(send.payload)
        return send
