"""Reports on the instances that a worker runs, for REST."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from geminga_functions.names import InstanceName


class InstanceState(StrEnum):
    """What an instance does at this moment."""

    PREPARING = "preparing"  # its package is fetched, its environment built
    STARTING = "starting"  # its process or thread exists, the user's code is being loaded
    RUNNING = "running"
    STOPPING = "stopping"  # it finishes the messages in progress
    FAILED = "failed"  # it ended by itself, and is started again after a delay
    STOPPED = "stopped"  # a user has stopped it


# The states that last: an instance in one of them is not on its way to another one.
SETTLED = frozenset({InstanceState.RUNNING, InstanceState.FAILED, InstanceState.STOPPED})


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
