"""What was read from ZooKeeper, kept until it changes: reads that are repeated cost nothing.

Every kept answer, also "there is no such node", stands under a watch and is dropped when the watch
fires. Watches do not survive a lost connection, so all is read again when it is back. While
ZooKeeper is away, what was read last holds on, however long that is, so that what goes on by itself
is not held up, though it had changed and nobody had read it again, unless it is said not to
(``holds_changed``); "there is no such node" does not, for it may have been made since, unless it is
said to (``holds_missing``). The number of kept answers is bounded; the oldest go first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from geminga_runtime.coordination import Coordination, NodeMissing, OnChange, SessionState

# A kept record takes about 1 KB here and its watch some 100 bytes in ZooKeeper: 10 MB at most.
ENTRIES_MAX = 10_000

T = TypeVar("T")
Read = Callable[[str, OnChange], Awaitable[T]]
OnStale = Callable[[str | None], None]
"""Called with the path whose answer may no longer hold; with None when that is so of all."""


class Watched(Generic[T]):
    """Answers by path. ``read(path, on_change)`` asks ZooKeeper and raises ``NodeMissing``."""

    def __init__(
        self,
        coordination: Coordination,
        read: Read[T],
        *,
        entries_max: int = ENTRIES_MAX,
        holds_missing: bool = False,
        holds_changed: bool = True,
    ) -> None:
        self._holds_missing = holds_missing
        self._holds_changed = holds_changed
        self._coordination = coordination
        self._read = read
        self._entries_max = entries_max
        self._entries: dict[str, T | None] = {}
        # What may have changed since: all that is known while there is no connection.
        self._former: dict[str, T | None] = {}
        self._is_connected = True
        # The newest question under way per path. A change takes it out, so that the answer, which
        # may be older than the change, is given but not kept.
        self._asking: dict[str, object] = {}
        self._followers: list[OnStale] = []
        coordination.on_session(self._session_changed)

    async def get(self, path: str) -> T | None:
        """The answer for ``path``, None where there is no node. Raises ``CoordinationError``."""
        if path in self._entries:
            return self._entries[path]
        if not self._is_connected and path in self._former:
            return self._former[path]
        question = self._asking[path] = object()
        try:
            value = await self._ask(path)
            if self._asking.get(path) is question:
                self._keep(path, value)
        finally:
            if self._asking.get(path) is question:
                del self._asking[path]
        return value

    def known(self, path: str) -> T | None:
        """The answer if it is kept and not "missing"; asks nobody."""
        if path in self._entries or self._is_connected:
            return self._entries.get(path)
        return self._former.get(path)

    def keeps(self, path: str) -> bool:
        """Whether an answer is kept, "missing" too."""
        return path in self._entries or (not self._is_connected and path in self._former)

    def follow(self, on_stale: OnStale) -> None:
        """Call ``on_stale`` when something that was read here has changed, or may have."""
        self._followers.append(on_stale)

    def _tell(self, path: str | None) -> None:
        for on_stale in self._followers:
            on_stale(path)

    def forget(self, path: str) -> None:
        """Drop what is kept of ``path``: for writers, who know of the change before the watch."""
        self._asking.pop(path, None)
        self._entries.pop(path, None)
        self._former.pop(path, None)

    async def _ask(self, path: str) -> T | None:
        def changed() -> None:
            self._asking.pop(path, None)
            if path in self._entries:
                value = self._entries.pop(path)
                # A lost connection is told before the watches that go with it.
                is_change = self._is_connected
                if is_change and not self._holds_changed:
                    self._former.pop(path, None)
                elif value is not None or self._holds_missing:
                    self._bound(self._former)
                    self._former[path] = value
            if self._is_connected:  # else it is no change: followers are told when all are read
                self._tell(path)

        while True:
            try:
                return await self._read(path, changed)
            except NodeMissing:
                # A read of a missing node leaves no watch; created in between, it is read again.
                if await self._coordination.exists(path, on_change=changed) is None:
                    return None

    def _keep(self, path: str, value: T | None) -> None:
        self._former.pop(path, None)
        self._bound(self._entries)
        self._entries[path] = value

    def _bound(self, answers: dict[str, Any]) -> None:
        """Make room for one more."""
        while len(answers) >= self._entries_max:
            del answers[next(iter(answers))]

    def _session_changed(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        if self._is_connected:
            self._asking.clear()
            self._entries.clear()
            self._former.clear()
            self._tell(None)


def watched_values(
    coordination: Coordination,
    decode: Callable[[bytes], T],
    *,
    entries_max: int = ENTRIES_MAX,
    holds_missing: bool = False,
) -> Watched[T]:
    """Keep decoded node values."""

    async def read(path: str, on_change: OnChange) -> T:
        value, _ = await coordination.get(path, on_change=on_change)
        return decode(value)

    return Watched(coordination, read, entries_max=entries_max, holds_missing=holds_missing)


def watched_children(
    coordination: Coordination, *, holds_missing: bool = False
) -> Watched[frozenset[str]]:
    """Keep the names of nodes' children."""

    async def read(path: str, on_change: OnChange) -> frozenset[str]:
        return frozenset(await coordination.children(path, on_change=on_change))

    return Watched(coordination, read, holds_missing=holds_missing)
