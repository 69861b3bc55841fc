"""What the directory of topics is told; what holds for topics themselves is policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """The settings of all topics of a broker together."""

    # A part that is asked to end is cut off after 5 s (``geminga_server.run``).
    close_budget_s: Annotated[float, Gt(0)] = 3.0
    """How long topics may take to close, asked to end; the next owner recovers the others."""
