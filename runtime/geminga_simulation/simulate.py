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
    """What came of a simulation: the result, and the facts that must repeat with the seed.

    ``trace`` is the digest of all events, ``lines`` their text where it was recorded.
    """

    result: ResultT
    trace: str
    virtual_s: float
    callbacks: int
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
    loop = SimulatedLoop(
        seed, callbacks_max=callbacks_max, time_limit_s=time_limit_s, record=record
    )
    if control is not None:
        control.loop = loop
    with _collection_deferred(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            result = runner.run(main())
        except BaseException:
            loop.abandon()
            raise
        lines = tuple(loop.trace.lines or ())
        return Outcome(result, loop.trace.digest(), loop.now_s, loop.callbacks, lines)


@contextmanager
def _collection_deferred() -> Generator[None]:
    """No cyclic garbage collection meanwhile: finalizers must not run at chance moments.

    It also saves about a fifth of the run's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What killed processes left, coroutines that they made and never awaited among it, goes
        # here and silently: not in somebody else's test. Everything made meanwhile is young.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect(0)
        if was_enabled:
            gc.enable()
