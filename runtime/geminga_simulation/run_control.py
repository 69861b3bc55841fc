"""Orders for the faults of a simulated story, and a report of a run that failed.

A story draws its menu from its seed and knows nothing of this. To find the cause of a failure, a
tool runs the story again with another menu, or with faults that end earlier: ``simulate`` obeys
within ``controlled``. Faults that end earlier are the same faults, so the run is the same up to
there, to the last byte.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from geminga_simulation.conditions import Conditions

if TYPE_CHECKING:
    from geminga_simulation.event_loop.loop import SimulatedLoop

RATE = "_rate"
CONDITIONS = ("network", "disk", "coordination")
# A dish that is no fault: queues, caches and tables are as large as the seed says.
SIZES = "sizes"
MenuT = TypeVar("MenuT", bound=Conditions)


@dataclass(slots=True)
class RunControl:
    """The first three fields are orders; the run fills in the others. A story may have several
    worlds, one after the other: they are of the last one."""

    # The dishes that are served (``dish_names``); None leaves that to the story.
    menu: Collection[str] | None = None
    # No fault comes later than this, in virtual seconds.
    faults_end_s: float = inf
    # Keep the text of the trace.
    is_recorded: bool = False

    loop: SimulatedLoop | None = None
    # What was on the menu, and whether ``SIZES`` was served too.
    dishes: list[str] = field(default_factory=list[str])
    has_sizes: bool = False
    # What was done to the world: (virtual seconds, text).
    events: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    # What processes logged as errors: (virtual seconds, host, text).
    errors: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])


# A context variable, not an argument: stories and their worlds need not pass it on.
RUN_CONTROL: ContextVar[RunControl] = ContextVar("geminga_run_control")


@contextmanager
def controlled(control: RunControl) -> Generator[RunControl]:
    """Let ``control`` hold for the stories that run within the block."""
    # Set outside of the loop: ``asyncio.Runner`` runs the story in a copy of this context.
    token = RUN_CONTROL.set(control)
    try:
        yield control
    finally:
        RUN_CONTROL.reset(token)


def chosen_from(menu: MenuT, drawn: MenuT) -> MenuT:
    """The menu that is served: what a seed has ``drawn``, or the ordered dishes of ``menu``."""
    control = RUN_CONTROL.get(None)
    return drawn if control is None or control.menu is None else only(menu, control.menu)


def dish_names(menu: type[Conditions]) -> list[str]:
    """All that a menu of this class may offer: ``crash`` for its ``crash_rate``, ``disk`` for its
    conditions of disks, and so on."""
    # In the order of the fields, which the injector's draws depend on.
    names = (entry.name for entry in fields(menu))  # type: ignore[arg-type]  # a dataclass
    return [name.removesuffix(RATE) for name in names if name.endswith(RATE) or name in CONDITIONS]


def dishes_of(menu: Conditions) -> list[str]:
    """The dishes that ``menu`` offers: rates above 0, and conditions that are not good."""
    return [
        name
        for name in dish_names(type(menu))
        if getattr(menu, name if name in CONDITIONS else name + RATE) != _left_out(menu, name)
    ]


def only(menu: MenuT, dishes: Collection[str]) -> MenuT:
    """``menu`` with no dish but these."""
    changes = {
        name if name in CONDITIONS else name + RATE: _left_out(menu, name)
        for name in dish_names(type(menu))
        if name not in dishes
    }
    # Bounds and probabilities stay: only what is off the table cannot happen.
    return replace(menu, **changes)  # type: ignore[type-var]  # a dataclass


def _left_out(menu: Conditions, name: str) -> Any:  # noqa: ANN401 -- a rate, or some conditions
    """The value of a dish that is not served."""
    return type(getattr(menu, name))() if name in CONDITIONS else 0.0
