"""Waits of a process that starts: logged, because a silent wait looks like a hang; and the wait for
a node that another process writes, since all parts of a new cluster start at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from geminga_runtime.coordination import Coordination

log = logging.getLogger(__name__)

# The first message comes when most waits are over. A new cluster on a busy machine takes longer:
# warnings begin only with the next one, which repeats.
FIRST_MESSAGE_S = 0.5
NEXT_MESSAGE_S = 5.0


@contextmanager
def logged_wait(event: str, facts: Callable[[], Mapping[str, object]]) -> Generator[None]:
    """While its block runs, log ``event`` with ``facts()``: after ``FIRST_MESSAGE_S``, and then as
    a warning every ``NEXT_MESSAGE_S``."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    timer: asyncio.TimerHandle | None = None

    def report() -> None:
        nonlocal timer
        waited_s = round(loop.time() - begun_s, 1)
        level = logging.INFO if waited_s < NEXT_MESSAGE_S else logging.WARNING
        # The facts of now: how far a connection has come changes while it is waited for.
        log.log(level, event, extra={**facts(), "waited_s": waited_s})
        # Always one timer: the next is set when the last has fired, and the end of the wait cancels
        # it.
        timer = loop.call_later(NEXT_MESSAGE_S, report)

    timer = loop.call_later(FIRST_MESSAGE_S, report)
    try:
        yield
    finally:
        timer.cancel()


async def wait_for_node(coordination: Coordination, path: str, timeout_s: float) -> None:
    """Return when there is a node at ``path``, or after ``timeout_s``.

    The caller then reads the node and reports what is missing. Raises ``CoordinationError``.
    """
    facts = {"node": path, "at_most_s": timeout_s}
    try:
        with logged_wait("waiting for a node that another process writes", lambda: facts):
            async with asyncio.timeout(timeout_s):
                while True:
                    # A watch fires once, and also when the connection breaks: ask again each time.
                    changed = asyncio.Event()
                    # One request both looks and sets the watch: the node cannot appear in between
                    # unseen.
                    if await coordination.exists(path, on_change=changed.set) is not None:
                        return
                    await changed.wait()
    except TimeoutError:
        return
