"""What a message changes in a state, before it counts: kept apart from the state itself. Pure.

A message that fails changes nothing, so its changes wait until it has succeeded. Those of several
messages wait together where they are to be stored together: then the changes of one message stand
on those of the messages before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class StateView(Protocol):
    """What changes stand on: a state, or other changes."""

    def get(self, key: str) -> bytes | None:
        """The value of a key, None if it has none."""
        ...

    def counter(self, key: str) -> int:
        """The counter's value, 0 if it is not there."""
        ...

    def has_counter(self, key: str) -> bool:
        """Whether something was added to the counter since it was removed."""
        ...


class State(StateView, Protocol):
    """What takes changes over."""

    def apply(self, changes: Changes) -> None:
        """Make these changes, which stand on this state."""
        ...


@dataclass(slots=True)
class CounterChange:
    """``added`` to a counter, after it was removed or not; None where it was only removed. The sum,
    not the result, is kept: what others add meanwhile is not lost."""

    is_removed: bool = False
    added: int | None = None

    def add(self, amount: int) -> None:
        """Add ``amount``, which may be 0, to what is added."""
        self.added = (self.added or 0) + amount


class Changes:
    """Changes on top of ``base``, which they leave as it is. One thread at a time uses them.

    ``is_used`` says whether anything was read or changed by way of them.
    """

    def __init__(self, base: StateView) -> None:
        self.is_used = False
        self.values: dict[str, bytes | None] = {}
        self.counters: dict[str, CounterChange] = {}
        self._base = base

    def increment(self, key: str, amount: int) -> None:
        """Add to a counter, which is 0 at first."""
        self.is_used = True
        self.counters.setdefault(key, CounterChange()).add(amount)

    def counter(self, key: str) -> int:
        """As ``StateView.counter``."""
        self.is_used = True
        change = self.counters.get(key)
        if change is None:
            return self._base.counter(key)
        return (change.added or 0) + (0 if change.is_removed else self._base.counter(key))

    def has_counter(self, key: str) -> bool:
        """As ``StateView.has_counter``."""
        change = self.counters.get(key)
        if change is None:
            return self._base.has_counter(key)
        return change.added is not None

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self.is_used = True
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self.is_used = True
        return self.values[key] if key in self.values else self._base.get(key)

    def delete(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        if self.get(key) is not None:
            self.values[key] = None
        if self.has_counter(key):
            self.counters[key] = CounterChange(is_removed=True)

    def apply(self, changes: Changes) -> None:
        """Take over later changes, which stand on these."""
        self.is_used |= changes.is_used
        self.values |= changes.values
        for key, later in changes.counters.items():
            if later.is_removed:
                self.counters[key] = CounterChange(is_removed=True, added=later.added)
            elif later.added is not None:
                self.counters.setdefault(key, CounterChange()).add(later.added)

    @property
    def size(self) -> int:
        """About how many bytes the values take."""
        return sum(len(key) + len(value or b"") for key, value in self.values.items())
