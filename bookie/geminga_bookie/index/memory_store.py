"""The index's store for tests and simulations: sorted pairs in memory, and what a crash leaves."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from geminga_bookie.formats.index_v2 import Pair


@dataclass(slots=True, eq=False)
class MemoryStore:
    """A ``SortedStore`` without a disk. ``crash`` loses what was not flushed.

    It outlives the bookie that uses it, as a disk would: give the same store to the next one.
    """

    # Called before each flush: a moment to crash.
    on_flush: Callable[[], None] = lambda: None
    # Called before each read: it may raise ``OSError``.
    on_read: Callable[[], None] = lambda: None
    # What a reader sees; the keys once more, sorted.
    _values: dict[bytes, bytes] = field(init=False, default_factory=dict)
    _keys: list[bytes] = field(init=False, default_factory=list)
    # What survives a crash.
    _flushed: dict[bytes, bytes] = field(init=False, default_factory=dict)

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``."""
        self.on_read()
        return self._values.get(key)

    def descend(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Pairs with ``low <= key <= high``, highest key first."""
        self.on_read()
        # All at once: a descent does not see what is written while it is read.
        keys = self._keys[bisect_left(self._keys, low) : bisect_right(self._keys, high)]
        yield from [(key, self._values[key]) for key in reversed(keys)]

    def write(self, pairs: Sequence[Pair], removed: Sequence[bytes] = ()) -> None:
        """Put all pairs, then remove the keys ``removed``."""
        # In memory a write cannot be torn; what a crash leaves is decided by ``flush`` alone.
        for key, value in pairs:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
        for key in removed:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    async def flush(self) -> None:
        """Make everything written so far survive ``crash``."""
        # Called before the bytes are safe: a crash in this moment loses them.
        self.on_flush()
        self._flushed = dict(self._values)

    def flushed(self) -> Iterator[Pair]:
        """Yield what a crash now would leave, in no order."""
        yield from self._flushed.items()

    def crash(self) -> None:
        """Go back to what was flushed last."""
        self._values = dict(self._flushed)
        self._keys = sorted(self._values)
