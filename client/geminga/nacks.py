"""Messages that were refused by the application, and when they are asked for again."""

from __future__ import annotations

from geminga.ack_group import Position

# Beyond it, the oldest refusals are not delayed any further: the queue stays bounded.
NACKS_HELD_MAX = 100_000


class Nacks:
    """Entries to be delivered again, each when its time has come (seconds of the loop's clock)."""

    def __init__(self, held_max: int = NACKS_HELD_MAX) -> None:
        self._held_max = held_max
        # In the order of their times, since all wait equally long; refusing again changes nothing.
        self._due_s: dict[Position, float] = {}

    def add(self, position: Position, due_s: float) -> None:
        """Ask for this entry again at ``due_s``, which never lies before that of an earlier one."""
        self._due_s.setdefault(position, due_s)

    def remove(self, position: Position) -> None:
        """Do not ask for this entry: it was acknowledged after all."""
        self._due_s.pop(position, None)

    @property
    def next_due_s(self) -> float | None:
        """When ``take_due`` has something to give; ``None`` without refusals."""
        first = next(iter(self._due_s.values()), None)
        return 0.0 if first is not None and len(self._due_s) > self._held_max else first

    def take_due(self, now_s: float) -> list[Position]:
        """The entries to ask for now."""
        due: list[Position] = []
        for position, due_s in self._due_s.items():
            if due_s > now_s and len(self._due_s) - len(due) <= self._held_max:
                break
            due.append(position)
        for position in due:
            del self._due_s[position]
        return due

    def clear(self) -> None:
        """Forget everything: a broker that we attach to anew delivers it all again."""
        self._due_s.clear()
