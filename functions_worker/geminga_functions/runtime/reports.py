"""Reports on the instances that a worker runs, for REST."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from geminga_functions.names import InstanceName


class InstanceState(StrEnum):
    """What an instance does at this moment."""

    PREPARING = "preparing"  # its package is fetched, its environment built
    STARTING = "starting"  # its process or thread exists, the user's code is being loaded
    RUNNING = "running"
    STOPPING = "stopping"  # it finishes the messages in progress
    FAILED = "failed"  # it ended by itself, and is started again after a delay
    STOPPED = "stopped"  # a user has stopped it

    @property
    def is_settled(self) -> bool:
        """Whether the state lasts: the instance is not on its way to another one."""
        return self in {InstanceState.RUNNING, InstanceState.FAILED, InstanceState.STOPPED}


@dataclass(frozen=True, slots=True)
class InstanceFailure:
    """Why an instance ended, or could not start."""

    # For the author of the function: a traceback, the output of pip, or how the process ended and
    # what it wrote last.
    trace: str
    # Whether the function is to blame, not the worker.
    is_user_error: bool
    # In milliseconds since 1970.
    at_ms: int


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance as its worker sees it."""

    name: InstanceName
    version: int
    state: InstanceState
    # Starts after the first one.
    restarts: int
    # The last failure; it stays when the instance runs again.
    failure: InstanceFailure | None
    # None in a thread, and while no process runs.
    pid: int | None


class InstanceReports(Protocol):
    """The instances that a worker runs itself, as its REST interface uses them."""

    def reports(self) -> list[InstanceReport]:
        """Reports on all instances that are assigned to this worker or still end here, by name."""
        ...

    def report(self, name: InstanceName) -> InstanceReport | None:
        """The report on one of them; None for an instance that is not on this worker."""
        ...

    async def settled(self, name: InstanceName, version: int, timeout_s: float) -> InstanceReport:
        """Wait until this version of the instance, or a later one, runs, has failed or is stopped.

        Raises ``TimeoutError``.
        """
        ...

    async def status(self, name: InstanceName, timeout_s: float) -> str | None:
        """The counts of the instance, an ``InstanceStatus`` as JSON.

        None if it does not run, or does not answer within ``timeout_s``.
        """
        ...

    async def restart(self, name: InstanceName) -> bool:
        """End the instance and let it start anew; returns once it has ended.

        False: the instance is not on this worker.
        """
        ...
