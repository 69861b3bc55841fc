"""Timers in virtual time, and by the clocks of machines, which run at their own pace.

asyncio's own methods (``time``, ``call_later``, ``call_at``) go by the clock of the machine on
which the callback will run. What happens outside of all processes, such as a chunk on its way or
the end of a partition, goes by virtual time: ``now_s``, ``after``, ``at``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappush
from random import Random
from typing import TypeVarTuple

from geminga_simulation.event_loop.incarnation import CURRENT, Incarnation, Pace, SimulatedHandle

ArgumentsT = TypeVarTuple("ArgumentsT")

# The heap is swept once it holds this many entries more than twice what the last sweep left. So at
# most about half of it, and these, are timers that will never fire, and a sweep costs little for
# each timer that is set.
CANCELLED_TIMERS_KEPT = 512


class TimerLoop(asyncio.BaseEventLoop):
    """The part of ``SimulatedLoop`` that keeps the timers, and when each one is due."""

    main: Incarnation
    random: Random
    # Virtual seconds since the simulation began. Only the loop sets it.
    now_s: float
    _serial: int
    # Due time in virtual seconds, chance, serial, and what is due: a callback, or a turn of an
    # incarnation. The chance decides the order of what is due at one instant; the serial only keeps
    # the heap from comparing the items.
    _heap: list[tuple[float, float, int, SimulatedHandle | Incarnation]]
    # The length of the heap at which cancelled timers are swept out of it.
    _sweep_at: int

    def time(self) -> float:
        """Seconds by the clock of the machine whose process asks."""
        # The clock of the process that asks, not that of the loop: ``asyncio.timeout`` adds to it,
        # and gives the sum to ``call_at``.
        pace = CURRENT.get(self.main).pace
        return self.now_s if pace is None else pace.local(self.now_s)

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
        pace = (context.get(CURRENT) or self.main).pace
        now_s = self.now_s if pace is None else pace.local(self.now_s)
        return self.at(now_s + delay, callback, *args, context=context, pace=pace)

    def call_at(
        self,
        when: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` when the clock of the machine that it runs on shows ``when``."""
        if context is None:
            context = copy_context()
        pace = (context.get(CURRENT) or self.main).pace
        return self.at(when, callback, *args, context=context, pace=pace)

    def after(
        self,
        seconds: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` in so many virtual seconds: for what is outside of all processes."""
        return self.at(self.now_s + seconds, callback, *args, context=context)

    def at(
        self,
        when_s: float,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
        pace: Pace | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when_s`` by the clock that goes at ``pace``, by default in virtual
        time. Timers of one instant fire in an order that the seed chooses."""
        if context is None:
            context = copy_context()
        incarnation = context.get(CURRENT) or self.main
        self._serial = serial = self._serial + 1
        # By the machine's own clock, so that ``change_pace`` can compute the virtual time anew.
        handle = SimulatedHandle(callback, args, context, incarnation, serial, when_s, pace)
        # A dead process may still set timers in its cleanup: they get a handle, and never fire.
        if not incarnation.is_alive:
            return handle
        heap = self._heap
        due_s = when_s if pace is None else pace.when(when_s)
        # Drawn for every timer, also where no other is due at that instant: whether one will be is
        # not known yet.
        heappush(heap, (due_s, self.random.random(), serial, handle))
        if len(heap) > self._sweep_at:
            # Throw out the timers that will never fire. Most deadlines are met, and their timers
            # cancelled, long before they are due: they would pile up.
            heap[:] = [
                entry
                for entry in heap
                if isinstance(entry[3], Incarnation)
                or (entry[3].incarnation.is_alive and not entry[3].is_cancelled)
            ]
            heapify(heap)
            # Twice as many: the sweeps cost each timer a constant share.
            self._sweep_at = 2 * len(heap) + CANCELLED_TIMERS_KEPT
        return handle

    def change_pace(self, pace: Pace, rate: float) -> None:
        """Let a machine's clock go at another rate from now on, and its timers with it."""
        now_s, heap = self.now_s, self._heap
        # Both clocks go on from what they show now.
        pace.local_s, pace.since_s, pace.rate = pace.local(now_s), now_s, rate
        # What the machine's timers are due at by its own clock stays; only the virtual time of that
        # changes. The chances are kept, so that the order within an instant stays as well.
        heap[:] = [
            (pace.when(item.when_s), chance, serial, item)
            if isinstance(item, SimulatedHandle) and item.pace is pace
            else (when_s, chance, serial, item)
            for when_s, chance, serial, item in heap
        ]
        heapify(heap)
