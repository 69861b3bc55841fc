"""The payloads of one producer that were sent and have no receipt yet, in their order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from geminga.errors import ClientError
from geminga_runtime.errors import GemingaError

ContextT = TypeVar("ContextT")


@dataclass(slots=True)
class PendingSend(Generic[ContextT]):
    """One SEND command, kept to be sent again on another connection."""

    sequence_id: int
    # The frame in two pieces: its head, with the beginning of the payload in some cases, and the
    # rest of the payload, which is not copied.
    head: bytes
    payload: bytes | memoryview
    # When it fails without a receipt, in seconds of the loop's clock.
    deadline_s: float
    # What its sender knows it by.
    context: ContextT
    # Of the last message, if the payload is a batch.
    highest_sequence_id: int = 0
    # Why the broker refused it, if it did so before it confirmed those in front.
    refusal: ClientError | None = None


class ReceiptOutOfOrder(GemingaError):
    """A receipt came for a later SEND than the oldest unconfirmed one."""


#    the next receipt is for this one
#    ▼
#    4    5 refused    6    7    ◀── add
#
# 5 is reported when 4 has its receipt, and only then is the receipt of 6 in its turn. On a new
# connection 4, 6 and 7 are sent again.
@dataclass(slots=True, eq=False)
class PendingSends(Generic[ContextT]):
    """A queue of ``PendingSend``, bounded by ``sends_max`` and ``bytes_max``.

    Brokers confirm sends in the order in which they were sent. A receipt that skips one means that
    the broker lost it, and with it the order.
    """

    sends_max: int
    bytes_max: int
    # In the order of sending, in which sequence ids never go down; the chunks of one message share
    # one. Read by the owner, changed here.
    sends: deque[PendingSend[ContextT]] = field(
        default_factory=deque[PendingSend[ContextT]], init=False
    )
    # Of all payloads in it.
    payload_bytes: int = field(default=0, init=False)

    def has_room(self, payload_bytes: int) -> bool:
        """May one more SEND be added, with a payload of so many bytes? The first one always may, or
        a payload larger than ``bytes_max`` could never be sent."""
        if not self.sends:
            return True
        return (
            len(self.sends) < self.sends_max
            and self.payload_bytes + payload_bytes <= self.bytes_max
        )

    def add(self, send: PendingSend[ContextT]) -> None:
        """Add the newest SEND. Its owner keeps the bounds, by ``has_room`` or by its own."""
        self.sends.append(send)
        self.payload_bytes += len(send.payload)

    def confirm(self, sequence_id: int) -> PendingSend[ContextT] | None:
        """Take out the SEND that a receipt is for.

        ``None`` for a receipt that came late: its SEND was sent twice, or has timed out.
        Raises ``ReceiptOutOfOrder``: the broker lost the oldest one, all must be sent again.
        """
        # Sequence ids go up, so that a lower one was settled before.
        if not self.sends or sequence_id < self.sends[0].sequence_id:
            return None
        if sequence_id > self.sends[0].sequence_id:
            raise ReceiptOutOfOrder(
                f"{sequence_id} was confirmed before {self.sends[0].sequence_id}"
            )
        return self._take()

    def refuse(self, sequence_id: int, refusal: ClientError) -> bool:
        """Note why a SEND is not stored, until its turn has come; says whether there is such a one.

        A batch may be refused under the number of its last message, as upstream's brokers do, or of
        its first.
        """
        for send in self.sends:
            # For a single message the second is 0.
            last = max(send.sequence_id, send.highest_sequence_id)
            if send.sequence_id <= sequence_id <= last and send.refusal is None:
                send.refusal = refusal
                return True
        return False

    def take_refused(self) -> list[PendingSend[ContextT]]:
        """Take out what was refused, up to the first SEND that still waits for its receipt."""
        refused: list[PendingSend[ContextT]] = []
        while self.sends and self.sends[0].refusal is not None:
            refused.append(self._take())
        return refused

    def expire(self, now_s: float) -> list[PendingSend[ContextT]]:
        """Take out what has reached its deadline by ``now_s``; by infinity everything has."""
        expired: list[PendingSend[ContextT]] = []
        # The queue is in the order of the deadlines: all of one producer have the same timeout.
        while self.sends and self.sends[0].deadline_s <= now_s:
            expired.append(self._take())
        return expired

    def _take(self) -> PendingSend[ContextT]:
        send = self.sends.popleft()
        self.payload_bytes -= len(send.payload)
        return send
