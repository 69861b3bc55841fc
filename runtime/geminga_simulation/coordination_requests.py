"""What is on its way between a client and the simulated ZooKeeper: requests, and the watches that
they leave at the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga_runtime.coordination import CoordinationError, OnChange
from geminga_simulation.write_troubles import Trouble

if TYPE_CHECKING:
    from geminga_simulation.coordination_session import SimulatedSession


class Watch:
    """Somebody wants to hear of the next change, once."""

    __slots__ = ("is_spent", "on_change", "session")

    def __init__(self, session: SimulatedSession, on_change: OnChange) -> None:
        self.session = session
        self.on_change = on_change
        self.is_spent = False


class Request:
    """One question on its way: what the server does for it, and who waits for the answer.

    ``verb`` says what a write does to the node at ``path``; it is empty where nothing is written.
    ``trouble`` is what the server will do to it.
    """

    __slots__ = ("future", "path", "timer", "trouble", "verb", "watch", "watches", "work")

    def __init__(
        self,
        path: str,
        work: Callable[[], object],
        future: asyncio.Future[object],
        watch: Watch | None,
        watches: dict[str, list[Watch]] | None,
        *,
        verb: str,
    ) -> None:
        self.path = path
        self.verb = verb
        self.trouble: Trouble | None = None
        self.work = work
        self.future = future
        self.watch = watch
        self.watches = watches
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, result: object, error: CoordinationError | None) -> None:
        """Answer it, unless nobody waits any more."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
