"""What is known of the instances that a worker runs, as REST asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from geminga_functions.names import InstanceName


class InstanceState(StrEnum):
    """What an instance does at this moment."""

    PREPARING = "preparing"  # its package is fetched, its environment built
    STARTING = "starting"  # its process or thread is there, the user's code is being loaded
    RUNNING = "running"
    STOPPING = "stopping"  # it finishes the messages that are begun
    FAILED = "failed"  # it ended by itself, and is started again after a while
    STOPPED = "stopped"  # its function's metadata want it stopped

    @property
    def is_settled(self) -> bool:
        """Whether it stays so until something happens to the instance."""
        return self in {InstanceState.RUNNING, InstanceState.FAILED, InstanceState.STOPPED}


@dataclass(frozen=True, slots=True)
class InstanceFailure:
    """Why an instance ended, or could not start.

    ``trace`` is what helps the author: a traceback, what pip said, or how the process ended and
    the last that it wrote. ``is_user_error`` says that the function is to blame, not the worker.
    """

    trace: str
    is_user_error: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance as its worker sees it. ``restarts`` counts the starts after the first one, and
    ``failure`` is the last one, kept also when the instance runs again."""

    name: InstanceName
    version: int
    state: InstanceState
    restarts: int
    failure: InstanceFailure | None
    pid: int | None


class InstanceReports(Protocol):
    """What REST asks a worker about the instances that it runs itself."""

    def reports(self) -> list[InstanceReport]:
        """All instances that are assigned to this worker or still end here, by name."""
        ...

    def report(self, name: InstanceName) -> InstanceReport | None:
        """One of them; None where this worker does not have it."""
        ...

    async def settled(self, name: InstanceName, version: int, timeout_s: float) -> InstanceReport:
        """The report of the instance once that version of it, or a later one, runs, has failed or
        is stopped. Raises ``TimeoutError``."""
        ...

    async def status(self, name: InstanceName, timeout_s: float) -> str | None:
        """What the instance counts, as JSON of ``InstanceStatus``; None where it does not run, or
        does not answer within ``timeout_s``."""
        ...

    async def restart(self, name: InstanceName) -> bool:
        """End the instance and start it anew; whether this worker has it. Returns once the old one
        has ended."""
        ...
