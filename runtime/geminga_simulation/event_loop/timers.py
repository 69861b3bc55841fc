"""Timers in virtual time, and by the clocks of machines, which go at their own pace.

What asyncio knows (``time``, ``call_later``, ``call_at``) goes by the clock of the machine whose
process asks, or whose process is to be called. What is outside of all processes, such as a chunk on
its way or the end of a partition, goes by virtual time: ``now_s``, ``after``, ``at``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappush
from random import Random
from typing import Any, TypeVarTuple

from geminga_simulation.event_loop.incarnation import CURRENT, Incarnation, Pace, SimulatedHandle

ArgumentsT = TypeVarTuple("ArgumentsT")

# Cancelled timers are swept out of the heap when they are this many, and the half of it.
CANCELLED_TIMERS_KEPT = 512


class TimerLoop(asyncio.BaseEventLoop):
    """The part of ``SimulatedLoop`` that keeps what is due, and when."""

    main: Incarnation
    random: Random
    _now_s: float
    _serial: int
    _heap: list[tuple[float, float, int, SimulatedHandle | Incarnation]]
    _sweep_at: int

    @property
    def now_s(self) -> float:
        """Virtual seconds since the simulation began: for what is outside of all processes."""
        return self._now_s

    def time(self) -> float:
        """The same by the clock of the machine whose process asks."""
        pace = CURRENT.get(self.main).pace
        return self._now_s if pace is None else pace.local(self._now_s)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` in ``delay`` seconds of the machine that it runs on."""
        if context is None:
            context = copy_context()
        incarnation = context.get(CURRENT) or self.main
        pace = incarnation.pace
        now_s = self._now_s if pace is None else pace.local(self._now_s)
        return self._set_timer(now_s + delay, pace, callback, args, context, incarnation)

    def call_at(
        self,
        when: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` when its machine's clock shows ``when``; those of one instant in chance
        order."""
        if context is None:
            context = copy_context()
        incarnation = context.get(CURRENT) or self.main
        return self._set_timer(when, incarnation.pace, callback, args, context, incarnation)

    def after(
        self,
        seconds: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As ``call_later`` in virtual time: for what is outside of all processes."""
        return self.at(self._now_s + seconds, callback, *args, context=context)

    def at(
        self,
        when_s: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As ``call_at`` in virtual time."""
        if context is None:
            context = copy_context()
        incarnation = context.get(CURRENT) or self.main
        return self._set_timer(when_s, None, callback, args, context, incarnation)

    def _set_timer(
        self,
        when_s: float,
        pace: Pace | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        incarnation: Incarnation,
    ) -> asyncio.TimerHandle:
        self._serial = serial = self._serial + 1
        handle = SimulatedHandle(callback, args, context, incarnation, serial, when_s, pace)
        if incarnation.is_alive:
            heap = self._heap
            due_s = when_s if pace is None else pace.when(when_s)
            heappush(heap, (due_s, self.random.random(), serial, handle))
            if len(heap) > self._sweep_at:
                self._sweep()
        return handle

    def change_pace(self, pace: Pace, rate: float) -> None:
        """Let a machine's clock go at another rate from now on, and its timers with it."""
        pace.change(self._now_s, rate)
        heap = self._heap
        heap[:] = [
            (pace.when(item.when_s), chance, serial, item)
            if isinstance(item, SimulatedHandle) and item.pace is pace
            else (when_s, chance, serial, item)
            for when_s, chance, serial, item in heap
        ]
        heapify(heap)

    def _sweep(self) -> None:
        """Throw out timers that will never fire: deadlines that were met pile up otherwise."""
        heap = self._heap
        heap[:] = [
            entry
            for entry in heap
            if isinstance(entry[3], Incarnation)
            or (entry[3].incarnation.is_alive and not entry[3].is_cancelled)
        ]
        heapify(heap)
        self._sweep_at = 2 * len(heap) + CANCELLED_TIMERS_KEPT
