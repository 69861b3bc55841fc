"""The changes that a message makes in a state, kept apart until the message has succeeded. Pure.

A message that fails must change nothing. Where the changes of several messages are stored together,
they are also kept together before: each message sees the changes of the messages before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class StateView(Protocol):
    """What changes are made on top of: a state, or other changes."""

    def get(self, key: str) -> bytes | None:
        """The value of a key, None if it has none."""
        ...

    def sum_of(self, key: str) -> int | None:
        """The value of a counter; None if nothing was added to it since it was last removed.

        A counter that 0 was added to exists, which one that was removed does not.
        """
        ...


class State(StateView, Protocol):
    """A state that changes can be applied to."""

    def apply(self, changes: Changes) -> None:
        """Make these changes, which were made on top of this state."""
        ...


@dataclass(slots=True)
class CounterChange:
    """A change of one counter.

    It keeps the sum that was added, not the resulting value: what other instances add meanwhile is
    not lost.
    """

    # Whether the counter was removed, before anything was added.
    is_removed: bool = False
    # None if nothing was added, which differs from 0: adding 0 makes a counter.
    added: int | None = None


class Changes:
    """Changes on top of ``base``, which stays as it is. One thread at a time uses them."""

    def __init__(self, base: StateView) -> None:
        # Whether anything was read or changed: a message without any use of the state need not be
        # committed together with it.
        self.is_used = False
        # None: the value was removed.
        self.values: dict[str, bytes | None] = {}
        self.counters: dict[str, CounterChange] = {}
        # Changes may stand on changes: with EFFECTIVELY_ONCE those of a message on those of its
        # slice, and these on the state.
        self._base = base

    def increment(self, key: str, amount: int) -> None:
        """Add ``amount``, which may be 0, to a counter, which begins with 0."""
        self.is_used = True
        change = self.counters.setdefault(key, CounterChange())
        change.added = (change.added or 0) + amount

    def sum_of(self, key: str) -> int | None:
        """As ``StateView.sum_of``."""
        self.is_used = True
        change = self.counters.get(key)
        if change is None:
            return self._base.sum_of(key)
        # What the base has counts no more.
        if change.is_removed:
            return change.added
        # The base is asked each time, not once: it changes as other instances add.
        return (self._base.sum_of(key) or 0) + (change.added or 0)

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self.is_used = True
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self.is_used = True
        return self.values[key] if key in self.values else self._base.get(key)

    def delete(self, key: str) -> None:
        """Remove the value and the counter of a key, whichever there is."""
        # Only what exists: a record of a removal stays in the lane. These reads count as a use,
        # too: what was removed depends on what was there.
        if self.get(key) is not None:
            self.values[key] = None
        if self.sum_of(key) is not None:
            self.counters[key] = CounterChange(is_removed=True)

    def apply(self, changes: Changes) -> None:
        """Take over changes that were made on top of these."""
        self.is_used |= changes.is_used
        # In the order of the messages: a later value, or removal, replaces an earlier one.
        self.values |= changes.values
        for key, later in changes.counters.items():
            if later.is_removed:
                # The removal undoes what these changes have added before.
                self.counters[key] = CounterChange(is_removed=True, added=later.added)
            # On top of a removal, too, if these changes have one: ``increment`` keeps
            # ``is_removed``.
            elif later.added is not None:
                self.increment(key, later.added)

    @property
    def size(self) -> int:
        """About how many bytes the values take."""
        return sum(len(key) + len(value or b"") for key, value in self.values.items())
