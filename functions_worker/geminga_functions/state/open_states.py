"""The states of functions that REST shows and changes: ``OpenStates``.

Opening a state reads all of its lanes. So each stays open for a while, in case a client requests it
every second.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Container
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import geminga
from geminga_functions.names import FunctionName, digest_of
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.table import REST_LANE
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service

# A state that was not requested for so long is closed.
IDLE_S = 60.0
# How often idle states are looked for.
IDLE_CHECK_S = 5.0


@dataclass(slots=True)
class OpenState:
    """The state of one function, and its users."""

    # Held while the state is opened, refreshed or closed.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # None before it is opened, and after it is closed.
    state: ChangelogState | None = None
    # Requests that use it now, and when the last one ended, by the monotonic clock. A state is
    # closed for being idle only at zero. A function that was deleted is closed with users too,
    # whose requests then fail.
    users: int = 0
    used_s: float = 0.0


class OpenStates(Service):
    """States of functions, each of which writes REST's lane.

    ``directory`` is for local copies, which are removed when this is opened and closed; None: the
    records are held in memory.
    """

    def __init__(
        self, client: geminga.Client, namespace: str, directory: Path | None, clock: Clock
    ) -> None:
        super().__init__()
        self._client = client
        self._namespace = namespace
        self._directory = directory
        self._clock = clock
        # Those that are open, or about to be; requests add them, ``close_but`` takes them out.
        self.open: dict[FunctionName, OpenState] = {}

    @asynccontextmanager
    async def use(self, name: FunctionName) -> AsyncGenerator[ChangelogState]:
        """The state of a function, with everything that is stored by now.

        Raises ``ClientError``, ``StateDamaged``, ``LocalCopyFailed``.
        """
        found = self.open.setdefault(name, OpenState())
        # Before any wait: a state with users is not closed for being idle.
        found.users += 1
        try:
            # One request opens or refreshes; those that come meanwhile wait for it, and refresh
            # once more: each must see what was stored before it came.
            async with found.turn:
                if found.state is not None and found.state.failure.done():
                    # It failed in an earlier request, which got the error.
                    await self._end(found)
                if found.state is None:
                    copy = (
                        None if self._directory is None else self._directory / digest_of(str(name))
                    )
                    # As a writer of REST's lane, which fences no instance.
                    state = ChangelogState(
                        self._client, self._namespace, name, REST_LANE, directory=copy
                    )
                    # Not ``async with``: it stays open beyond this request.
                    await state.__aenter__()
                    found.state = state
                else:
                    state = found.state
                    try:
                        await state.refresh()
                    except Exception:
                        # The next request opens it anew.
                        await self._end(found)
                        raise
            yield state
        finally:
            found.users -= 1
            found.used_s = self._clock.monotonic()
            # Opening has failed, or ``close_but`` has closed it. A locked turn belongs to a task
            # that decides this itself when it is done.
            if found.state is None and not found.users and not found.turn.locked():
                self.open.pop(name, None)

    async def close_but(self, known: Container[FunctionName]) -> None:
        """Close the states of functions that are not ``known``.

        The topics of their lanes cannot be deleted while a state is open here.
        """
        for name in [name for name in self.open if name not in known]:
            found = self.open.get(name)
            if found is None:
                continue  # a request that failed has taken it out meanwhile
            async with found.turn:
                await self._end(found)
            # A request that waited for the turn meanwhile opens the state again.
            if not found.users:
                self.open.pop(name, None)

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._directory is not None:
            # Those of an earlier worker, which may have been killed.
            shutil.rmtree(self._directory, ignore_errors=True)
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        # Closed before the copies are removed, which they write to while they close.
        stack.push_async_callback(self.close_but, ())
        self.spawn_every(IDLE_CHECK_S, self._close_idle, name="idle states")

    async def _end(self, found: OpenState) -> None:
        # Taken away before the wait: a second call finds nothing to close.
        state, found.state = found.state, None
        if state is not None:
            await state.__aexit__(None, None, None)

    async def _close_idle(self) -> None:
        now_s = self._clock.monotonic()
        await self.close_but(
            {name for name, each in self.open.items() if each.users or now_s - each.used_s < IDLE_S}
        )
