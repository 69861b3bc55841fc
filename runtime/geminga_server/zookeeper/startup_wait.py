"""Waits of a process that starts: logged, because a silent wait looks like a hang; and the wait for
a node that another process writes, since all parts of a new cluster start at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from geminga_runtime.coordination import Coordination

log = logging.getLogger(__name__)

# The first message comes when most waits are over. A new cluster on a busy machine takes longer:
# warnings begin only with the next one, which repeats.
FIRST_MESSAGE_S = 0.5
NEXT_MESSAGE_S = 5.0


class WaitLog:
    """While its block runs, logs ``event`` with ``facts()``: after ``FIRST_MESSAGE_S``, and then as
    a warning every ``NEXT_MESSAGE_S``."""

    def __init__(self, event: str, facts: Callable[[], Mapping[str, object]]) -> None:
        self._event = event
        self._facts = facts
        # When the block was entered, by the loop's time.
        self._begun_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._begun_s = loop.time()
        self._next = loop.call_later(FIRST_MESSAGE_S, self._log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._next is not None:
            self._next.cancel()

    def _log(self) -> None:
        loop = asyncio.get_running_loop()
        waited_s = round(loop.time() - self._begun_s, 1)
        level = logging.INFO if waited_s < NEXT_MESSAGE_S else logging.WARNING
        log.log(level, self._event, extra={**self._facts(), "waited_s": waited_s})
        self._next = loop.call_later(NEXT_MESSAGE_S, self._log)


async def wait_for_node(coordination: Coordination, path: str, timeout_s: float) -> None:
    """Return when there is a node at ``path``, or after ``timeout_s``.

    The caller then reads the node and reports what is missing. Raises ``CoordinationError``.
    """
    facts = {"node": path, "at_most_s": timeout_s}
    try:
        with WaitLog("waiting for a node that another process writes", lambda: facts):
            async with asyncio.timeout(timeout_s):
                while True:
                    # A watch fires once, and also when the connection breaks: ask again each time.
                    changed = asyncio.Event()
                    if await coordination.exists(path, on_change=changed.set) is not None:
                        return
                    await changed.wait()
    except TimeoutError:
        return
