"""Which messages of one batch still wait for their acknowledgement.

The broker stores a batch as one entry, which is acknowledged when all its messages are.
"""

from __future__ import annotations


class BatchAcks:
    """The messages of one received batch that are not yet acknowledged."""

    __slots__ = ("_open", "size")

    def __init__(self, size: int) -> None:
        """All of ``size`` messages wait."""
        self.size = size
        self._open = (1 << size) - 1

    @property
    def is_done(self) -> bool:
        """Is every message acknowledged, hence the entry?"""
        return self._open == 0

    def acknowledge(self, batch_index: int) -> bool:
        """Acknowledge one message; says whether the whole batch is done now."""
        self._open &= ~(1 << batch_index)
        return self._open == 0

    def acknowledge_up_to(self, batch_index: int) -> bool:
        """Acknowledge this message and those before it; says whether the batch is done now."""
        self._open &= ~((2 << batch_index) - 1)
        return self._open == 0
