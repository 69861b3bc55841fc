"""Waiting for what another process will write: all parts of a new cluster start at once."""

from __future__ import annotations

import asyncio
import logging

from geminga_runtime.coordination import Coordination

log = logging.getLogger(__name__)


async def wait_for_node(coordination: Coordination, path: str, timeout_s: float) -> None:
    """Return when there is a node at ``path``, after ``timeout_s`` as well.

    Who needs the node then says what is missing. Raises ``CoordinationError``.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed = asyncio.Event()
                if await coordination.exists(path, on_change=changed.set) is not None:
                    return
                log.debug("waiting for a node", extra={"node": path})
                await changed.wait()
    except TimeoutError:
        return
