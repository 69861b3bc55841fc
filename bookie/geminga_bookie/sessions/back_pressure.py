"""Back-pressure: while too much is in memory, no connection's socket is read.

Two things can be too much: adds that wait for the journal, and entries that wait for a checkpoint.
Both shrink by themselves, and each time they do ``review`` is called. Sockets that are not read
fill up, and clients stop sending: nothing is refused, and nothing grows without a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Connection(Protocol):
    """A connection that can be told to stop, to go on, and to end."""

    def set_held(self, *, is_held: bool) -> None:
        """Read nothing from now on, or read again."""
        ...

    def close(self) -> None:
        """Send what was written, then end."""
        ...

    def abort(self) -> None:
        """End now."""
        ...


@dataclass(slots=True, eq=False)
class MemoryBackPressure:
    """All open connections of a bookie; holds them while ``is_full`` says so."""

    # Asked at each ``review``: after adds have come, and after a group or a checkpoint has ended.
    is_full: Callable[[], bool]
    # Whether connections are held, and how often that began.
    is_held: bool = False
    holds: int = 0
    # A dict and not a set, for its order: a simulation must do the same each time, and the order of
    # a set depends on memory addresses.
    connections: dict[Connection, None] = field(init=False, default_factory=dict)
    _is_closed: bool = field(init=False, default=False)
    # Meaningful only after a first connection has come and gone; ``disconnect`` looks at the dict
    # first.
    _is_empty: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def join(self, connection: Connection) -> None:
        """Add a connection that was accepted."""
        self.connections[connection] = None
        self._is_empty.clear()
        # What holds the others holds the new one too.
        if self._is_closed:
            connection.abort()
        elif self.is_held:
            connection.set_held(is_held=True)

    def leave(self, connection: Connection) -> None:
        """Remove a connection that is gone."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._is_empty.set()

    def review(self) -> None:
        """Check again whether memory is full; hold or release all connections if that changed."""
        is_held = self._is_closed or self.is_full()
        if is_held == self.is_held:
            return
        # Set before the connections are told: ``join`` goes by it.
        self.is_held = is_held
        self.holds += is_held
        # A copy: a connection that is released may end, and leave, at once.
        for connection in list(self.connections):
            # A connection that is held for other reasons too stays held.
            connection.set_held(is_held=is_held)

    def close(self) -> None:
        """Hold all connections for good; later ones are aborted."""
        # From here on ``review`` never lets go: what the last groups free must not start reading
        # again.
        self._is_closed = True
        self.review()

    async def disconnect(self, timeout_s: float) -> None:
        """Close every connection; abort those that have not ended after ``timeout_s`` seconds."""
        for connection in list(self.connections):
            connection.close()
        if not self.connections:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
