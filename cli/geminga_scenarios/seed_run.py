"""Runs one seed of a story, and describes the result in values that pass between processes."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any

from geminga_scenarios.errors import NoScenario
from geminga_simulation import simulate
from geminga_simulation.event_loop.incarnation import CURRENT
from geminga_simulation.run_control import SIZES, RunControl, controlled

# Attributes that every log record has; the others are the fields of the event. ``message`` is only
# there once a formatter has seen the record.
_COMMON_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message"}
# An event of the trace: virtual seconds, the host or "", what happened.
Event = tuple[float, str, str]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a seed is run, and how much of it is kept for people."""

    # The faults that may come; None lets each seed draw them (``RunControl.menu``). Ordered faults
    # are drawn by the same streams, so that a menu which is given changes only what is left out.
    menu: frozenset[str] | None = None
    # No fault begins after this virtual second.
    faults_end_s: float = float("inf")
    # Keep what processes logged.
    is_traced: bool = False
    # Keep each callback of the loop and each delivery of the network as well.
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What happened in the run of one seed."""

    seed: int
    # The error, in one line or several; None where all was well.
    failure: str | None
    # The stack of that error.
    where: str
    virtual_s: float
    cpu_s: float
    # A hash of everything that happened, in its order: equal runs have equal digests.
    digest: str
    # The faults that were on the menu, and "sizes" where these were drawn.
    faults: tuple[str, ...]
    # The faults that came: virtual seconds, and what was done.
    events: tuple[tuple[float, str], ...]
    # The faults and what processes logged, with ``is_traced``.
    trace: tuple[Event, ...] = field(default=(), repr=False)
    # Callbacks and deliveries, with ``is_recorded``.
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def error(self) -> str | None:
        """The class of the error: failures with the same class count as the same failure."""
        return None if self.failure is None else self.failure.partition(":")[0]


# Runs a seed of one story: ``run_seed`` with its first argument bound. An error of the story is a
# part of the result.
RunSeed = Callable[[int, RunOptions], SeedResult]


def run_seed(
    run: Callable[[int], simulate.Outcome[Any]], seed: int, options: RunOptions
) -> SeedResult:
    """Run the story of ``seed``. Raises only ``NoScenario`` and what is no ``Exception``."""
    # An order for the run, and its report: the world fills it in, also when the run fails.
    control = RunControl(options.menu, options.faults_end_s, options.is_recorded)
    # Of this process alone; a campaign runs one seed at a time in each.
    began_s = os.times().user
    failure, where = None, ""
    with controlled(control), _captured_log(control, is_traced=options.is_traced) as logged:
        try:
            run(seed)
        # The file cannot be run with any seed: that is no result.
        except NoScenario:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the story has failed by it
            failure = "".join(traceback.format_exception_only(error)).strip()
            where = _story_stack(error)
    loop = control.loop  # None where the run failed before there was a world
    # Faults have no host of their own.
    trace = [(when_s, "", text) for when_s, text in control.events] + logged
    return SeedResult(
        seed,
        failure,
        where,
        virtual_s=0.0 if loop is None else loop.now_s,
        cpu_s=os.times().user - began_s,
        digest="" if loop is None else loop.trace.digest(),
        faults=(*control.dishes, *((SIZES,) if control.has_sizes else ())),
        events=tuple(control.events),
        # The sort is stable: a fault stands before what was logged in the same instant.
        trace=tuple(sorted(trace, key=lambda event: event[0])) if options.is_traced else (),
        lines=tuple((loop.trace.lines or ()) if loop is not None else ()),
    )


def _story_stack(error: Exception) -> str:
    """The stack of an error, from the first function on that belongs to the story."""
    stack = traceback.extract_tb(error.__traceback__)
    # The frames above it are of asyncio, of the simulation and of this package, in each run alike.
    # By folders: all of asyncio, of the simulation and of this package is passed over.
    machinery = (asyncio.__file__, simulate.__file__, __file__)
    folders = tuple(os.path.dirname(name) for name in machinery)  # noqa: PTH120 -- names, no files
    inside = list(dropwhile(lambda frame: frame.filename.startswith(folders), stack))
    return "".join(traceback.format_list(inside or stack)).rstrip()


@contextmanager
def _captured_log(control: RunControl, *, is_traced: bool) -> Generator[list[Event]]:
    """Collect what is logged meanwhile if the run is traced; else discard it.

    Either way the root logger has a handler, without which warnings go to standard error.
    """
    root = logging.getLogger()
    # The root logger belongs to the process: it is put back, as many seeds run one after the other.
    level = root.level
    events: list[Event] = []
    handler = _TraceHandler(control, events) if is_traced else logging.NullHandler()
    root.addHandler(handler)
    if is_traced:
        root.setLevel(logging.INFO)
    try:
        yield events
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


class _TraceHandler(logging.Handler):
    """Adds each log record to ``events``, with the virtual time and the host that logged it."""

    def __init__(self, control: RunControl, events: list[Event]) -> None:
        super().__init__(logging.INFO)
        self._control = control
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        """Add one record."""
        # The incarnation of the code that logs, by its context: there is one for each simulated
        # process.
        loop, incarnation = self._control.loop, CURRENT.get(None)
        fields = (
            f" {name}={value}" for name, value in vars(record).items() if name not in _COMMON_FIELDS
        )
        text = record.getMessage() + "".join(fields)
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        when_s = 0.0 if loop is None else loop.now_s
        self._events.append((when_s, "" if incarnation is None else incarnation.name, text))
