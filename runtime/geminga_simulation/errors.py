"""What can go wrong in a simulation itself, as opposed to in what it simulates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class SimulationError(GemingaError):
    """The simulation cannot go on, or was asked for what it cannot do."""

    code: ClassVar[str] = "SimulationError"


class NotSimulated(SimulationError):
    """Something of the real world was asked for: a thread, a socket, a signal, a process."""


class _Endless(SimulationError):
    """The simulation is not done, and never will be.

    ``tasks`` describes each pending task: host, name, and where it waits.
    """

    def __init__(self, why: str, tasks: Sequence[str]) -> None:
        listed = "".join(f"\n  {task}" for task in tasks) or " none"
        super().__init__(f"{why}; pending tasks:{listed}")
        self.tasks = tuple(tasks)


class SimulationDeadlock(_Endless):
    """Nothing is ready, and no timer is set."""


class CallbackLimitExceeded(_Endless):
    """More callbacks ran than the bound allows: some code turns in a circle."""


class TimeLimitExceeded(_Endless):
    """Virtual time passed its bound: what was waited for never came, while timers kept ticking."""


class HostCrashed(SimulationError):
    """The host that was to do this crashed before it was done."""

    retry = True

    def __init__(self, host: str) -> None:
        super().__init__(f"host {host} crashed")
        self.host = host


class InvariantViolated(SimulationError):
    """A checker found that the system broke a promise."""

    code: ClassVar[str] = "InvariantViolated"
