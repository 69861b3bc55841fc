"""Runs a story from one seed and says what came of it, in words that travel between processes."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any, Protocol

from geminga_scenarios.errors import NoScenario
from geminga_simulation import simulate
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.run_control import SIZES, RunControl, controlled

# What every record of ``logging`` has: the rest are the fields of the event.
_FIELDS_OF_ALL = frozenset(vars(logging.makeLogRecord({}))) | {"message"}
# An event: virtual seconds, the host or "", what happened.
Event = tuple[float, str, str]


@dataclass(frozen=True, slots=True)
class Orders:
    """How a story is to be told: ``RunControl`` says what the first two are for. ``is_traced``
    keeps what processes logged, ``is_recorded`` each callback and each delivery as well."""

    menu: frozenset[str] | None = None
    faults_end_s: float = float("inf")
    is_traced: bool = False
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one seed. ``failure`` is None where all was well, else the error, in a line or
    some; ``where`` is its stack. ``digest`` is the hash of all that happened, in their order."""

    seed: int
    failure: str | None
    where: str
    virtual_s: float
    cpu_s: float
    digest: str
    dishes: tuple[str, ...]
    # What was done to the world.
    events: tuple[tuple[float, str], ...]
    # The same and what was logged, where that was asked for.
    trace: tuple[Event, ...] = field(default=(), repr=False)
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def error(self) -> str | None:
        """The class of the error, by which failures are told apart."""
        return None if self.failure is None else self.failure.partition(":")[0]


class Tell(Protocol):
    """Tells the story of a seed: ``tell`` with its first argument given."""

    def __call__(self, seed: int, orders: Orders, /) -> Told:
        """Tell it. Raises nothing that the story raises."""
        ...


def tell(run: Callable[[int], simulate.Outcome[Any]], seed: int, orders: Orders) -> Told:
    """Run the story of ``seed``; raises ``KeyboardInterrupt`` and the like alone."""
    control = RunControl(orders.menu, orders.faults_end_s, orders.is_recorded)
    began_s = os.times().user
    failure, where = None, ""
    with controlled(control), _listening(control, is_traced=orders.is_traced) as logged:
        try:
            run(seed)
        except NoScenario:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the story has failed by it
            failure = "".join(traceback.format_exception_only(error)).strip()
            where = _where(error)
    loop = control.loop
    trace = [(when_s, "", text) for when_s, text in control.events] + logged
    return Told(
        seed,
        failure,
        where,
        virtual_s=0.0 if loop is None else loop.now_s,
        cpu_s=os.times().user - began_s,
        digest="" if loop is None else loop.trace.digest(),
        dishes=(*control.dishes, *((SIZES,) if control.has_sizes else ())),
        events=tuple(control.events),
        trace=tuple(sorted(trace, key=lambda event: event[0])) if orders.is_traced else (),
        lines=tuple((loop.trace.lines or ()) if loop is not None else ()),
    )


def _where(error: Exception) -> str:
    """The stack of an error, from the first function on that belongs to the story."""
    stack = traceback.extract_tb(error.__traceback__)
    machinery = (asyncio.__file__, simulate.__file__, __file__)
    folders = tuple(os.path.dirname(name) for name in machinery)  # noqa: PTH120 -- names, no files
    inside = list(dropwhile(lambda frame: frame.filename.startswith(folders), stack))
    return "".join(traceback.format_list(inside or stack)).rstrip()


@contextmanager
def _listening(control: RunControl, *, is_traced: bool) -> Generator[list[Event]]:
    """Keep what is logged meanwhile, if it is to be traced; and have nobody else print it."""
    root = logging.getLogger()
    level = root.level
    listener = _Listener(control) if is_traced else logging.NullHandler()
    root.addHandler(listener)
    if is_traced:
        root.setLevel(logging.INFO)
    try:
        yield listener.events if isinstance(listener, _Listener) else []
    finally:
        root.setLevel(level)
        root.removeHandler(listener)


class _Listener(logging.Handler):
    """Keeps records with the virtual time and the host of whoever logged them."""

    def __init__(self, control: RunControl) -> None:
        super().__init__(logging.INFO)
        self.events: list[Event] = []
        self._control = control

    def emit(self, record: logging.LogRecord) -> None:
        """Write one down."""
        loop, incarnation = self._control.loop, CURRENT.get(None)
        fields = (
            f" {name}={value}" for name, value in vars(record).items() if name not in _FIELDS_OF_ALL
        )
        text = record.getMessage() + "".join(fields)
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        when_s = 0.0 if loop is None else loop.now_s
        self.events.append((when_s, "" if incarnation is None else incarnation.name, text))
