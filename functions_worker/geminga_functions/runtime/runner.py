"""What a way of running instances provides: ``InstanceRunner``, and ``RunningInstance``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from geminga_functions.instance.messages import Start
from geminga_functions.names import InstanceName


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended."""

    # Empty if the instance was asked to end, and did.
    trace: str = ""
    # Whether the function is to blame, not the worker.
    is_user_error: bool = False
    # Whether it ended with its lease, which is no failure of the function.
    is_lease_over: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """An instance to start."""

    name: InstanceName
    # The first message to the instance; the fields below concern its process alone.
    start: Start
    # The interpreter of the function's environment.
    python: Path
    # What the function may allocate; 0: as much as there is.
    memory_bytes: int


class RunningInstance(Protocol):
    """An instance that was started, until nothing of it runs any more."""

    # Set once the instance processes messages.
    started: asyncio.Event
    # Done once nothing of the instance runs any more, whether it ever started or not; never fails.
    ended: asyncio.Future[Ending]
    pid: int | None

    def extend_lease(self, until_s: float) -> None:
        """Let it run until ``until_s`` of the monotonic clock."""
        ...

    async def status(self, timeout_s: float) -> str | None:
        """Its ``InstanceStatus`` as JSON; None if it does not answer in time."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Let it finish the messages in progress within ``timeout_s``, then end it by force.

        Returns once it has ended. If this is cancelled, the instance is ended by force at once.
        """
        ...

    def kill(self) -> None:
        """End it by force, at once; ``ended`` is done soon after."""
        ...


class InstanceRunner(Protocol):
    """A way of running instances."""

    async def start(self, order: Order) -> RunningInstance:
        """Start an instance. Raises ``OSError`` if the machine cannot."""
        ...
