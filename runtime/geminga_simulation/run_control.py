"""What whoever runs a story decides about its faults, and learns of a run that failed.

A story draws its menu from its seed and knows nothing of this. Whoever looks for the cause of a
failure tells it again with another menu, or with faults that end earlier: ``simulate`` within
``controlled`` obeys. Faults that end earlier are the same faults, so the run is the same up to
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
    """The first three fields are orders, the others are filled in while the story is told.

    ``menu`` names the dishes that are served (``dish_names``), None leaves that to the story. No
    fault comes later than ``faults_end_s``. ``dishes`` is what was on the menu, ``has_sizes`` is
    whether ``SIZES`` was served too, ``events`` what was done to the world until its end,
    ``errors`` what processes logged as errors: all of the story's last world.
    """

    menu: Collection[str] | None = None
    faults_end_s: float = inf
    is_recorded: bool = False
    loop: SimulatedLoop | None = None
    dishes: list[str] = field(default_factory=list[str])
    has_sizes: bool = False
    events: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    errors: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])


RUN_CONTROL: ContextVar[RunControl] = ContextVar("geminga_run_control")


@contextmanager
def controlled(control: RunControl) -> Generator[RunControl]:
    """Let ``control`` hold for the stories that are told meanwhile."""
    token = RUN_CONTROL.set(control)
    try:
        yield control
    finally:
        RUN_CONTROL.reset(token)


def chosen_from(menu: MenuT, drawn: MenuT) -> MenuT:
    """What is served of ``menu``: what a seed has ``drawn``, or what was ordered instead."""
    control = RUN_CONTROL.get(None)
    return drawn if control is None or control.menu is None else only(menu, control.menu)


def serves_sizes(*, drawn: bool) -> bool:
    """Whether sizes are as the seed says: where it has ``drawn`` that, or it was ordered."""
    control = RUN_CONTROL.get(None)
    if control is None:
        return drawn
    control.has_sizes = drawn if control.menu is None else SIZES in control.menu
    return control.has_sizes


def dish_names(menu: type[Conditions]) -> list[str]:
    """All that a menu of this class may offer: ``crash`` for its ``crash_rate``, ``disk`` for its
    conditions of disks, and so on."""
    names = (entry.name for entry in fields(menu))  # type: ignore[arg-type]  # a dataclass
    return [name.removesuffix(RATE) for name in names if name.endswith(RATE) or name in CONDITIONS]


def dishes_of(menu: Conditions) -> list[str]:
    """The dishes that ``menu`` offers: rates above 0, and conditions that are not good."""
    return [name for name in dish_names(type(menu)) if _value(menu, name) != _nothing(menu, name)]


def only(menu: MenuT, dishes: Collection[str]) -> MenuT:
    """``menu`` with no dish but these."""
    changes = {
        name if name in CONDITIONS else name + RATE: _nothing(menu, name)
        for name in dish_names(type(menu))
        if name not in dishes
    }
    return replace(menu, **changes)  # type: ignore[type-var]  # a dataclass


def _value(menu: Conditions, name: str) -> object:
    return getattr(menu, name if name in CONDITIONS else name + RATE)


def _nothing(menu: Conditions, name: str) -> Any:  # noqa: ANN401 -- as many as there are conditions
    """What a dish is where it is left out."""
    return type(getattr(menu, name))() if name in CONDITIONS else 0.0
