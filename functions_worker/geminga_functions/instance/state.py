"""The state of a function as its code sees it: keys with bytes, and keys with counters.

A ``StateStore`` belongs to one instance. Calls come from the thread that runs the user's code.
"""

from __future__ import annotations

from typing import Protocol

from geminga_functions.errors import StateUnavailable


class StateStore(Protocol):
    """What ``Context`` does with state. Raises ``StateUnavailable`` where there is none."""

    def increment(self, key: str, amount: int) -> None:
        """Add to a counter, which is 0 at first."""
        ...

    def counter(self, key: str) -> int:
        """The counter's value, 0 if it is not there."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def get(self, key: str) -> bytes | None:
        """The value of a key, None if it has none."""
        ...

    def delete(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        ...

    async def commit(self) -> None:
        """Store what was changed, all together. Raises ``GemingaError``."""
        ...


class NoState:
    """The state of an instance that was given none: each use says so."""

    def increment(self, key: str, amount: int) -> None:  # noqa: ARG002 - as StateStore
        """Raises ``StateUnavailable``."""
        raise StateUnavailable(key)

    def counter(self, key: str) -> int:
        """Raises ``StateUnavailable``."""
        raise StateUnavailable(key)

    def put(self, key: str, value: bytes) -> None:  # noqa: ARG002 - as StateStore
        """Raises ``StateUnavailable``."""
        raise StateUnavailable(key)

    def get(self, key: str) -> bytes | None:
        """Raises ``StateUnavailable``."""
        raise StateUnavailable(key)

    def delete(self, key: str) -> None:
        """Raises ``StateUnavailable``."""
        raise StateUnavailable(key)

    async def commit(self) -> None:
        """Nothing can have changed."""


class MemoryState:
    """State that ends with its process: for tests of functions."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._counters: dict[str, int] = {}

    def increment(self, key: str, amount: int) -> None:
        """As ``StateStore.increment``."""
        self._counters[key] = self.counter(key) + amount

    def counter(self, key: str) -> int:
        """As ``StateStore.counter``."""
        return self._counters.get(key, 0)

    def put(self, key: str, value: bytes) -> None:
        """As ``StateStore.put``."""
        self._values[key] = value

    def get(self, key: str) -> bytes | None:
        """As ``StateStore.get``."""
        return self._values.get(key)

    def delete(self, key: str) -> None:
        """As ``StateStore.delete``."""
        self._values.pop(key, None)
        self._counters.pop(key, None)

    async def commit(self) -> None:
        """There is nothing that it could be stored in."""
