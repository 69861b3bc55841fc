"""Where an entry is: ``(ledger_id, entry_id)``, ordered as the log is.

Positions are named tuples: they compare, hash and unpack at C speed, which the acknowledgement path
needs. Entry id -1 stands before the first entry of its ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

INT64_MAX = (1 << 63) - 1


class Position(NamedTuple):
    """One entry of a managed ledger, or the gap before the first one of a ledger (entry -1)."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
LATEST = Position(INT64_MAX, INT64_MAX)


Entry = tuple[int, bytes, int]
"""One stored entry: its id within the ledger, the bytes that are stored, and how many messages are
batched in it. The bytes are those that the client sent (``[magic crc32c metadata payload]``); only
where the number is 0 they must be looked at: the broker may have written something in front of
them, they may be no message at all, and how many they are was not counted yet.

A plain tuple: one is made for every entry, and a named one costs six times as much to make."""

EntryId = tuple[int, int]
"""``(ledger_id, entry_id)`` as it came from a client: a plain tuple, equal to its ``Position``."""

AckedEntry = tuple[int, int, Sequence[int]]
"""``(ledger_id, entry_id, ack_set)``; an empty ack set means the whole entry."""
