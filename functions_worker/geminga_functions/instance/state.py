"""The state of a function as its instance uses it: keys with bytes, and keys with counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import Changes
from geminga_functions.state.table import Commit


# ``Changes`` hold what a message changes, on top of a state, until the message succeeds:
#
#   Changes of the message -> [Changes of the slice] -> MemoryState, or ChangelogState -> lanes
@dataclass(slots=True, eq=False)
class MemoryState:
    """A state that ends with its process, and has one user: for tests of functions."""

    # ``apply`` alone changes them.
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    counters: dict[str, int] = field(default_factory=dict[str, int])

    # For tests, which ask for a number, as ``Context.get_counter`` does.
    def counter(self, key: str) -> int:
        """The value of a counter, 0 if there is no such counter."""
        return self.counters.get(key, 0)

    def sum_of(self, key: str) -> int | None:
        """As ``StateView.sum_of``."""
        # None and 0 differ, as in ``StateView.sum_of``.
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

    async def claim(self, partition: str) -> Commit | None:  # noqa: ARG002 - as there
        """As ``ChangelogState.claim``: no other run has committed anything."""
        return None

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:  # noqa: ARG002
        """As ``ChangelogState.commit_inputs``, without storing."""
        self.apply(changes)


# The state of a function as one instance sees it. Reading it and applying changes do not wait for a
# broker; both may be done in the thread of the user's code.
StateStore = ChangelogState | MemoryState
