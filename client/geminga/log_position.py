"""A place in the log of one topic: between two messages, named by the one that comes next."""

from __future__ import annotations

from typing import NamedTuple


class LogPosition(NamedTuple):
    """The next message to read of a topic without partitions, or of one partition: that of the
    entry ``entry_id`` of the ledger ``ledger_id``.

    Ranges of positions are half-open: ``start`` is the first message that belongs to them, ``end``
    the first one that does not. Positions sort in the order of the log. The message need not be
    there: the position behind the last entry of a ledger names an entry that never comes, and
    means the beginning of the next ledger. ``batch_index`` is -1 for an entry as a whole.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @property
    def entry(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id


# Before every message that there may be.
LOG_START = LogPosition(-1, -1)
