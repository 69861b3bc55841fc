"""Run one coroutine under simulation, from a seed to an outcome."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from geminga_simulation.event_loop.loop import (
    CALLBACKS_MAX_DEFAULT,
    TIME_LIMIT_S_DEFAULT,
    SimulatedLoop,
)
from geminga_simulation.run_control import RUN_CONTROL

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """The result of a simulation, and facts that must be the same in every run of its seed."""

    result: ResultT
    # The digest of all events.
    trace: str
    # How much virtual time passed, and how many callbacks ran.
    virtual_s: float
    callbacks: int
    # The text of the events, where it was recorded.
    lines: tuple[str, ...] = ()


def simulate(
    seed: int | str,
    main: Callable[[], Coroutine[Any, Any, ResultT]],
    *,
    callbacks_max: int = CALLBACKS_MAX_DEFAULT,
    time_limit_s: float = TIME_LIMIT_S_DEFAULT,
    record: bool = False,
) -> Outcome[ResultT]:
    """Run ``main()`` on a fresh loop until it is done.

    Raises what ``main`` raises, and ``SimulationDeadlock``, ``TimeLimitExceeded`` or
    ``CallbackLimitExceeded`` where it can never be done. ``record`` keeps the trace's text.
    """
    control = RUN_CONTROL.get(None)
    if control is not None:
        record = record or control.is_recorded
    # Kept in ``control`` before it runs, so that a run that fails can be looked at.
    loop = SimulatedLoop(
        seed, callbacks_max=callbacks_max, time_limit_s=time_limit_s, record=record
    )
    if control is not None:
        control.loop = loop
    with _garbage_collection_off(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            result = runner.run(main())
        except BaseException:
            # What is pending must not run on while the runner closes the loop. ``asyncio.Runner``
            # cancels all tasks and runs the loop once more; there must be none left.
            loop.abandon()
            raise
        # Before the runner closes the loop, which takes some more callbacks.
        lines = tuple(loop.trace.lines or ())
        return Outcome(result, loop.trace.digest(), loop.now_s, loop.callbacks, lines)


@contextmanager
def _garbage_collection_off() -> Generator[None]:
    """Put cyclic garbage collection off: finalizers must not run at chance moments.

    It also saves about a fifth of the run's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Objects of killed processes, with coroutines that they never awaited, are freed here and
        # silently, not in the middle of a later test. All of them are in the youngest generation.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect(0)
        if was_enabled:
            gc.enable()
