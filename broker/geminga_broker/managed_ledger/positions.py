"""Where an entry is: ``(ledger_id, entry_id)``, ordered as the log is.

Positions are named tuples: they compare, hash and unpack at C speed, which the acknowledgement path
needs. Entry id -1 stands before the first entry of its ledger. Both numbers are int64 on the wire.
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


# Before and behind every entry of every log, in the numbers that clients send for these.
EARLIEST = Position(-1, -1)
LATEST = Position(INT64_MAX, INT64_MAX)


Entry = tuple[int, bytes, int]
"""One stored entry: its id within the ledger, the bytes that are stored, and how many messages are
batched in it.

Where the number is not 0, the bytes are as the client sent them (``[magic crc32c metadata
payload]``). Where it is 0, the user of the entry has to parse it: the broker may have written its
own metadata in front, the entry may be no message at all, and its messages are not counted yet.

A plain tuple: one is made for every entry, and a named one costs six times as much to make."""

EntryId = tuple[int, int]
"""``(ledger_id, entry_id)`` as it came from a client: a plain tuple, equal to its ``Position``."""

AckedEntry = tuple[int, int, Sequence[int]]
"""``(ledger_id, entry_id, ack_set)``; an empty ack set means the whole entry."""
