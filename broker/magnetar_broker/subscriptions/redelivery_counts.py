"""How often each unacknowledged entry of a subscription was given back, which clients are told."""

from __future__ import annotations

from magnetar_broker.log.positions import Position


class RedeliveryCounts:
    """Counts of one subscription; an entry that was never given back costs nothing."""

    def __init__(self) -> None:
        self._counts: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, position: Position) -> int:
        """How often this entry was given back."""
        return self._counts.get(position, 0)

    def increment(self, position: Position) -> None:
        """It was given back once more."""
        self._counts[position] = self._counts.get(position, 0) + 1

    def forget(self, position: Position) -> None:
        """It was acknowledged."""
        self._counts.pop(position, None)

    def clear(self) -> None:
        """Begin anew: the subscription was moved."""
        self._counts.clear()
