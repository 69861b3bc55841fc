"""The state of a function as its instance uses it: keys with bytes, and keys with counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from geminga_functions.state.changes import Changes, State
from geminga_functions.state.table import Commit


class StateStore(State, Protocol):
    """The state of a function as one instance sees it.

    Reading and applying changes do not wait for a broker; both may be done in the thread of the
    user's code.
    """

    async def begin_use(self) -> None:
        """Read what all instances have stored by now, and follow what they store from now on.

        The first use in the thread of the user's code does that by itself. Code on the loop cannot
        wait for it, so this must be called before. Raises ``GemingaError``.
        """
        ...

    async def commit(self) -> None:
        """Store all applied changes: all of them or none. Raises ``GemingaError``."""
        ...

    async def claim(self, partition: str) -> Commit | None:
        """Become the only instance that commits inputs of a partition.

        Returns the last commit of its inputs, whichever instance made it, None if there is none.
        After that the state has all that any instance had stored. Raises ``GemingaError``.
        """
        ...

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:
        """Store and apply the changes of inputs of a partition, together with ``commit``.

        Raises ``GemingaError``: ``ProducerFenced`` where another instance has claimed the
        partition; then nothing is changed.
        """
        ...


@dataclass(slots=True, eq=False)
class MemoryState:
    """A ``StateStore`` that ends with its process: for tests of functions."""

    # ``apply`` alone changes them.
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    counters: dict[str, int] = field(default_factory=dict[str, int])

    def counter(self, key: str) -> int:
        """The value of a counter, 0 if there is no such counter."""
        return self.counters.get(key, 0)

    def sum_of(self, key: str) -> int | None:
        """As ``StateView.sum_of``."""
        return self.counters.get(key)

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        return self.values.get(key)

    def apply(self, changes: Changes) -> None:
        """As ``State.apply``."""
        for key, value in changes.values.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        # A removal comes before what was added: see ``CounterChange``.
        for key, change in changes.counters.items():
            if change.is_removed:
                self.counters.pop(key, None)
            if change.added is not None:
                self.counters[key] = self.counter(key) + change.added

    async def begin_use(self) -> None:
        """Do nothing: there are no other instances."""

    async def commit(self) -> None:
        """Do nothing: the state is in memory alone."""

    async def claim(self, partition: str) -> Commit | None:  # noqa: ARG002 - as StateStore
        """As ``StateStore.claim``: no other run has committed anything."""
        return None

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:  # noqa: ARG002
        """As ``StateStore.commit_inputs``, without storing."""
        self.apply(changes)
