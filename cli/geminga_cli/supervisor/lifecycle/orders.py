"""What the fleet knows of a part, and the orders that it gives. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """Where a part is in its life."""

    WAITING = "waiting"  # for its (next) start
    STARTING = "starting"  # it runs, and has not said that it is ready
    READY = "ready"
    DOWN = "down"  # an operator keeps it so
    ENDED = "ended"  # it will not be started again


@dataclass(frozen=True, slots=True)
class PartRules:
    """What a part needs, and how many seconds after a stop began it is killed at the latest.

    Parts of one ``kind`` stop together; one without is alone.
    """

    name: str
    stop_deadline_s: float
    needs: tuple[str, ...] = ()
    kind: str = ""

    @property
    def group(self) -> str:
        """What stops together."""
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
    """End the part's process now, and say why."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Have the part's process stand still."""

    part: str


@dataclass(frozen=True, slots=True)
class Thaw:
    """Let the process that stands still go on."""

    part: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Nothing to do but to say it: the part has no process and is started again in a while."""

    part: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Everything is ready for the first time."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything has ended. ``failed`` names the part that could not be started, if any."""

    failed: str | None


Order = Start | Release | Terminate | Kill | Freeze | Thaw | Restart | Announce | Finish
