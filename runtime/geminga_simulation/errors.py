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

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what} does not exist under simulation: {instead}")


class SimulationDeadlock(SimulationError):
    """Nothing is ready, no timer is set, and yet the simulation is not done.

    ``tasks`` describes each pending task: host, name, and where it waits.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        listed = "".join(f"\n  {task}" for task in tasks) or " none"
        super().__init__(f"nothing can ever happen again; pending tasks:{listed}")
        self.tasks = tuple(tasks)


class CallbackLimitExceeded(SimulationError):
    """More callbacks ran than the bound allows: some code turns in a circle."""

    def __init__(self, callbacks_max: int, tasks: Sequence[str]) -> None:
        listed = "".join(f"\n  {task}" for task in tasks) or " none"
        super().__init__(f"more than {callbacks_max} callbacks ran; pending tasks:{listed}")
        self.callbacks_max = callbacks_max
        self.tasks = tuple(tasks)


class TimeLimitExceeded(SimulationError):
    """Virtual time passed its bound: what was waited for never came, while timers kept ticking."""

    def __init__(self, time_limit_s: float, tasks: Sequence[str]) -> None:
        listed = "".join(f"\n  {task}" for task in tasks) or " none"
        super().__init__(f"more than {time_limit_s} virtual seconds; pending tasks:{listed}")
        self.time_limit_s = time_limit_s
        self.tasks = tuple(tasks)


class HostCrashed(SimulationError):
    """The host that was to do this crashed before it was done."""

    retry = True

    def __init__(self, host: str) -> None:
        super().__init__(f"host {host} crashed")
        self.host = host


class InvariantViolated(SimulationError):
    """A checker found that the system broke a promise."""

    code: ClassVar[str] = "InvariantViolated"
