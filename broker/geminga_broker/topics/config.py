"""Settings of all topics of a broker together; what holds for single topics is policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """The settings of the topic directory."""

    # Below the 5 s after which the closing of a whole broker is cut off (``geminga_server.run``).
    # What does not close in time is not lost: acknowledged messages are durable, and the next owner
    # recovers ledgers and cursors as after a crash.
    close_budget_s: Annotated[float, Gt(0)] = 3.0
    """How long topics may take to close when the broker ends; the next owner recovers the rest."""
