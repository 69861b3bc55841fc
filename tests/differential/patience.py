"""How long scenarios wait, all by the same factor: a broker may be slower than was thought."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

FACTOR: ContextVar[float] = ContextVar("FACTOR", default=1.0)


def patient(seconds: float) -> float:
    """So many seconds, or more where the scenario is to be patient."""
    return seconds * FACTOR.get()


async def pause(seconds: float) -> None:
    """Wait for something that gives no sign when it is done."""
    await asyncio.sleep(patient(seconds))
