"""What a part needs, the phases of its life, and the orders of the fleet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """Where a part is in its life. The values are shown to operators."""

    # Programs compare these words (``status --json``): they stay as they are.
    WAITING = "waiting"  # for its first or next start
    STARTING = "starting"  # its process runs and is not ready yet
    READY = "ready"
    DOWN = "down"  # an operator keeps it down
    ENDED = "ended"  # it will not be started again


@dataclass(frozen=True, slots=True)
class PartRules:
    """What the fleet must know of a part beforehand."""

    name: str
    # Seconds from the beginning of a stop until the part is killed, if it has not ended. Deadlines
    # that began with the part's own turn would add up, and the user waits for the sum.
    stop_deadline_s: float
    # The parts that must be ready before this one is released.
    needs: tuple[str, ...] = ()
    # Parts of one kind stop together; a part without a kind stops alone.
    kind: str = ""

    @property
    def group(self) -> str:
        """The name of what stops together."""
        return self.kind or self.name


@dataclass(frozen=True, slots=True)
class Start:
    """Start the part's process."""

    part: str


@dataclass(frozen=True, slots=True)
class Release:
    """Tell the running part that what it needs is ready."""

    part: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the part to stop."""

    part: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the part's process; ``reason`` is for the log."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop the part's process with SIGSTOP."""

    part: str


@dataclass(frozen=True, slots=True)
class Thaw:
    """Continue the process that was stopped with SIGSTOP."""

    part: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Report that the part has no process, and that ``Start`` follows in ``delay_s``."""

    part: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Report that every part is ready for the first time."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything has ended. ``failed`` names the part that could not be started, if any."""

    failed: str | None


# What the fleet decides, and the supervisor carries out: tests look at the orders alone.
Order = Start | Release | Terminate | Kill | Freeze | Thaw | Restart | Announce | Finish
