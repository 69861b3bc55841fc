"""What a starting process waits for: said soon and then now and then, for a silent wait looks like
a hang; and the wait for what another process will write, as all parts of a new cluster start at
once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from geminga_runtime.coordination import Coordination

log = logging.getLogger(__name__)

# Most waits are over by then. A new cluster on a busy machine takes longer: that is no warning yet.
FIRST_WORD_S = 0.5
NEXT_WORD_S = 5.0


class WaitLog:
    """While its block runs, logs ``event`` with ``facts``: soon, and then as a warning every
    ``NEXT_WORD_S``."""

    def __init__(self, event: str, facts: Callable[[], Mapping[str, object]]) -> None:
        self._event = event
        self._facts = facts
        self._begun_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._begun_s = loop.time()
        self._next = loop.call_later(FIRST_WORD_S, self._say)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._next is not None:
            self._next.cancel()

    def _say(self) -> None:
        loop = asyncio.get_running_loop()
        waited_s = round(loop.time() - self._begun_s, 1)
        level = logging.INFO if waited_s < NEXT_WORD_S else logging.WARNING
        log.log(level, self._event, extra={**self._facts(), "waited_s": waited_s})
        self._next = loop.call_later(NEXT_WORD_S, self._say)


async def wait_for_node(coordination: Coordination, path: str, timeout_s: float) -> None:
    """Return when there is a node at ``path``, after ``timeout_s`` as well.

    Who needs the node then says what is missing. Raises ``CoordinationError``.
    """
    facts = {"node": path, "at_most_s": timeout_s}
    try:
        with WaitLog("waiting for a node that another process writes", lambda: facts):
            async with asyncio.timeout(timeout_s):
                while True:
                    changed = asyncio.Event()
                    if await coordination.exists(path, on_change=changed.set) is not None:
                        return
                    await changed.wait()
    except TimeoutError:
        return
