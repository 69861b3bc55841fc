"""A cache of reads from ZooKeeper that watches keep valid: repeated reads cost nothing.

Every cached answer, also "there is no such node", has a watch and is dropped when the watch fires.
Watches do not survive a lost connection, so everything is read again when it is back.

While ZooKeeper is away, the answers of before hold, however long that takes, so that servers go on
serving: also an answer that had changed and was not read again, unless ``holds_changed`` is False.
"There is no such node" does not hold, since the node may have been created, unless
``holds_missing`` is True. The number of cached answers is bounded; the oldest are evicted first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from geminga_runtime.coordination import Coordination, NodeMissing, OnChange, SessionState

# A kept record takes about 1 KB here and its watch some 100 bytes in ZooKeeper: 10 MB at most.
ENTRIES_MAX = 10_000

T = TypeVar("T")
Read = Callable[[str, OnChange], Awaitable[T]]
OnStale = Callable[[str | None], None]
"""Called with the path whose answer may be outdated; with None when all may be."""


# Where an answer is kept, and what moves it:
#
#     _asking ---- answered ----> _entries ---- its watch fires ----> _former
#     (a read under way)          (valid)                             (used without a connection)
#         |
#         +-- a change, or a write of ours, came in between: returned, and not kept
#
# The next read of the path takes its former answer away; the next connection clears all three.
class Watched(Generic[T]):
    """Answers by path. ``read(path, on_change)`` reads from ZooKeeper; raises ``NodeMissing``."""

    def __init__(
        self,
        coordination: Coordination,
        read: Read[T],
        *,
        entries_max: int = ENTRIES_MAX,
        holds_missing: bool = False,
        holds_changed: bool = True,
    ) -> None:
        self._coordination = coordination
        self._read = read
        # What may be answered without a connection; see the top of the module.
        self._holds_missing = holds_missing
        self._holds_changed = holds_changed
        self._entries_max = entries_max
        # Valid answers; None: there is no such node.
        self._entries: dict[str, T | None] = {}
        # Answers that may be outdated, for the time without a connection.
        self._former: dict[str, T | None] = {}
        # Assumed until the session says otherwise: a cache may be made after the session began.
        self._is_connected = True
        # The newest read under way of each path. A change removes it, so that its answer, which may
        # be older than the change, is returned but not cached.
        self._asking: dict[str, object] = {}
        self._followers: list[OnStale] = []
        coordination.on_session(self._session_changed)

    async def get(self, path: str) -> T | None:
        """The answer for ``path``, None where there is no node. Raises ``CoordinationError``."""
        if path in self._entries:
            # A hit awaits nothing: callers ask for every topic that they load.
            return self._entries[path]
        # Without a connection and without a former answer the read is held until there is one, or
        # fails.
        if not self._is_connected and path in self._former:
            return self._former[path]
        # Two callers may read the same path at once. The newer read replaces the older one here,
        # and only its answer is cached.
        question = self._asking[path] = object()
        try:
            value = await read_if_exists(
                self._coordination, path, self._read, partial(self._changed, path)
            )
            if self._asking.get(path) is question:
                self._former.pop(path, None)
                self._bound(self._entries)
                self._entries[path] = value
        finally:
            if self._asking.get(path) is question:
                del self._asking[path]
        return value

    def known(self, path: str) -> T | None:
        """The cached answer; None where there is none, or no such node. Never reads ZooKeeper."""
        if path in self._entries or self._is_connected:
            return self._entries.get(path)
        return self._former.get(path)

    def keeps(self, path: str) -> bool:
        """Whether an answer is cached, "there is no such node" included."""
        return path in self._entries or (not self._is_connected and path in self._former)

    def follow(self, on_stale: OnStale) -> None:
        """Call ``on_stale`` when an answer that was given here has changed, or may have."""
        self._followers.append(on_stale)

    def forget(self, path: str) -> None:
        """Drop the answer for ``path``: writers know of a change before its watch fires."""
        # A read that is under way is not cached either: it may have been answered before the write.
        self._asking.pop(path, None)
        self._entries.pop(path, None)
        self._former.pop(path, None)

    def _changed(self, path: str) -> None:
        """A watch fired: drop the answer for ``path``, and notify the followers."""
        # The answer of a read that is under way may be older than the change.
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
        # Without a connection it is no change: followers are notified when it is back.
        if self._is_connected:
            for on_stale in self._followers:
                on_stale(path)

    def _bound(self, answers: dict[str, Any]) -> None:
        """Evict the oldest answers until there is room for one more."""
        # A dictionary keeps the order of insertion: its first key is the oldest.
        while len(answers) >= self._entries_max:
            del answers[next(iter(answers))]

    def _session_changed(self, state: SessionState) -> None:
        # Answers are dropped when the connection is back, not when it is lost: until then they are
        # all that servers have. A read from before the loss may still be answered; without its
        # entry in ``_asking`` it is not cached.
        self._is_connected = state is SessionState.CONNECTED
        if self._is_connected:
            self._asking.clear()
            self._entries.clear()
            self._former.clear()
            for on_stale in self._followers:
                on_stale(None)


async def read_if_exists(
    coordination: Coordination, path: str, read: Read[T], on_change: OnChange
) -> T | None:
    """What ``read`` reads, or None where there is no node; a watch is left in either case."""
    while True:
        try:
            return await read(path, on_change)
        except NodeMissing:
            # Reading a missing node leaves no watch, but checking whether it exists does. If it was
            # created between the two requests, it is read again.
            if await coordination.exists(path, on_change=on_change) is None:
                return None


def watched_values(
    coordination: Coordination,
    decode: Callable[[bytes], T],
    *,
    entries_max: int = ENTRIES_MAX,
    holds_missing: bool = False,
) -> Watched[T]:
    """A cache of decoded node values."""

    async def read(path: str, on_change: OnChange) -> T:
        value, _ = await coordination.get(path, on_change=on_change)
        return decode(value)

    return Watched(coordination, read, entries_max=entries_max, holds_missing=holds_missing)


def watched_children(
    coordination: Coordination, *, holds_missing: bool = False
) -> Watched[frozenset[str]]:
    """A cache of the names of nodes' children."""

    async def read(path: str, on_change: OnChange) -> frozenset[str]:
        return frozenset(await coordination.children(path, on_change=on_change))

    return Watched(coordination, read, holds_missing=holds_missing)
