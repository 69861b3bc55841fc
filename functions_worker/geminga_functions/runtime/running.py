"""What a way of running instances is: it starts one, and hands back something to end it with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from geminga_functions.instance.messages import Start
from geminga_functions.names import InstanceName


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended. ``trace`` is empty where it was asked to end, and did so;
    ``is_lease_over`` says that it ended with its lease, which is no failure of the function."""

    trace: str = ""
    is_user_error: bool = False
    is_lease_over: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What is to run: ``start`` is told to the instance, the rest concerns its process alone.

    ``python`` is the interpreter of the function's environment. ``memory_bytes`` is what the
    function may allocate; 0: as much as there is.
    """

    name: InstanceName
    start: Start
    python: Path
    memory_bytes: int


class RunningInstance(Protocol):
    """An instance that was started. ``started`` is done once it processes messages, ``ended`` once
    nothing of it runs any more; ``ended`` may come without ``started``, and never fails."""

    started: asyncio.Event
    ended: asyncio.Future[Ending]
    pid: int | None

    def extend_lease(self, until_s: float) -> None:
        """It may run until ``until_s`` of the monotonic clock."""
        ...

    async def status(self, timeout_s: float) -> str | None:
        """Its ``InstanceStatus`` as JSON; None where it does not answer in time."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Let it finish what is begun within ``timeout_s``, then end it by force; returns once it
        has ended. Cancelled, it ends it by force at once."""
        ...

    def kill(self) -> None:
        """End it at once, by force; ``ended`` is done soon after."""
        ...


class InstanceRunner(Protocol):
    """A way of running instances."""

    async def start(self, order: Order) -> RunningInstance:
        """Start one. Raises ``OSError`` where the machine cannot."""
        ...
