"""An event loop whose time is virtual and whose every choice comes from a seed.

No selector, no socket, no thread. Callbacks belong to incarnations (``incarnation.py``: one life of
a simulated process). Each has its own first-in-first-out queue, and runs it in turns as a real loop
does: what a turn schedules with ``call_soon`` runs in the next one. When no incarnation has
anything ready, time jumps to the next timer.

What is guaranteed, because protocol code relies on it: within one incarnation ``call_soon`` keeps
its order, and time never goes back. What the seed chooses, because a real machine promises nothing:
which of several incarnations ready at one instant goes first, the order of timers due at the
same instant, and how long a turn keeps an incarnation busy. Network deliveries are timers.

The same seed gives the same trace (``trace.py``) in every process: tasks, futures and handles hash
by serial number, so that sets of them have one order, and default task names count from this
loop's start. Code under test must not iterate over sets of other objects.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.events import _get_running_loop, _set_running_loop
from asyncio.tasks import _enter_task, _leave_task, _unregister_task
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from weakref import WeakSet

from geminga_simulation.errors import (
    CallbackLimitExceeded,
    NotSimulated,
    SimulationDeadlock,
    SimulationError,
    TimeLimitExceeded,
)
from geminga_simulation.event_loop.incarnation import (
    CURRENT,
    TASKS_BEFORE_PRUNING,
    Incarnation,
    Pace,
    SimulatedFuture,
    SimulatedHandle,
    SimulatedTask,
)
from geminga_simulation.event_loop.timers import CANCELLED_TIMERS_KEPT, TimerLoop
from geminga_simulation.event_loop.trace import Trace, label_of

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

# A run of a whole cluster over some hundred messages takes about a hundred thousand callbacks.
CALLBACKS_MAX_DEFAULT = 5_000_000
# Protocols set timers without end, so a wait for what never comes would never deadlock: it ends as
# an error once this much virtual time has passed. One day.
TIME_LIMIT_S_DEFAULT = 86_400.0


def running_loop() -> SimulatedLoop:
    """The running loop, which must be a simulated one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop), "this needs a SimulatedLoop around it"
    return loop


# How a callback gets to run:
#
#     call_soon ──────────────▶ incarnation.ready ──▶ a turn of it, in the heap ──▶ runs
#     call_later, at ──▶ heap ──▶ (due) ──▶ incarnation.ready ──▶ as above
#
# The heap is ordered by time, then by chance: that is where the seed decides.
class SimulatedLoop(TimerLoop):
    """An event loop for a whole cluster in one thread; see the module's text.

    ``main`` is the incarnation of everything not started as a host: a test, a scenario. Its turns
    cost no time. ``random`` is the loop's own stream; others are derived from ``seed``.
    """

    # Of asyncio's base class: ``stop``, ``is_closed`` and ``run_until_complete`` go by them.
    _closed: bool
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(
        self,
        seed: int | str = 0,
        *,
        callbacks_max: int = CALLBACKS_MAX_DEFAULT,
        time_limit_s: float = TIME_LIMIT_S_DEFAULT,
        record: bool = False,
    ) -> None:
        # Before asyncio's own constructor, which asks whether the loop runs.
        self._is_running = False
        super().__init__()
        self.seed = seed
        # Orders and turns only; hosts, disks and links have streams of their own.
        self.random = self.stream("loop")
        self.trace = Trace(record=record)
        # How many callbacks have run, of all incarnations.
        self.callbacks = 0
        # The contexts that the exception handler was called with by live incarnations, for checkers
        # to read.
        self.failures: list[dict[str, Any]] = []
        self._callbacks_max = callbacks_max
        self._time_limit_s = time_limit_s
        self.now_s = 0.0
        # The last serial number given to a handle, future, task or turn. One counter for all kinds,
        # so a serial names one thing in the trace.
        self._serial = 0
        self._heap = []
        self._sweep_at = CANCELLED_TIMERS_KEPT
        # All lives of all processes, the dead ones included: their place here is their number.
        self._incarnations: list[Incarnation] = []
        # Killed incarnations whose tasks were not thrown away yet.
        self._graveyard: dict[Incarnation, None] = {}
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        # By ``id``: when a generator is finalized, weak references to it are gone already.
        self._generator_owners: dict[int, Incarnation] = {}
        self.main = self.incarnate("main", turn_cost_s=0.0)

    def stream(self, name: str) -> Random:
        """A random source of its own for ``name``: drawing from one disturbs no other."""
        return Random(f"{self.seed}/{name}")  # noqa: S311 -- chance, not secrecy

    # --- incarnations -----------------------------------------------------------------------

    def incarnate(
        self, name: str, *, turn_cost_s: float = 0.0, pace: Pace | None = None
    ) -> Incarnation:
        """Begin a new life of the process ``name``; run things in it through its ``context``."""
        incarnation = Incarnation(name, len(self._incarnations) + 1, turn_cost_s, pace)
        self._incarnations.append(incarnation)
        return incarnation

    def kill(self, incarnation: Incarnation) -> None:
        """End a life at once: nothing that is ready runs, timers never fire, tasks never resume."""
        # From here on ``_run_ready`` stops, entries of the heap are skipped, and the seams refuse.
        incarnation.is_alive = False
        # asyncio must not see tasks that will never end: ``asyncio.run`` would wait for them.
        for task in incarnation.pending_tasks():
            _unregister_task(task)
        self._graveyard[incarnation] = None

    def pause(self, incarnation: Incarnation, until_s: float) -> None:
        """Let the process do nothing until virtual time ``until_s``, as SIGSTOP does."""
        # two.
        incarnation.busy_until_s = until_s
        # A turn that is queued for an earlier moment is superseded: its serial no longer fits.
        if incarnation.turn_serial:
            self._queue_turn(incarnation)

    def bury(self) -> None:
        """Free the tasks of the dead. Their cleanup runs now, and reaches nothing."""
        graveyard, self._graveyard = self._graveyard, {}
        # Steps of the dead tasks are run here as the loop would run them: asyncio wants a running
        # loop for that, and no task to be running meanwhile but the one whose step it is.
        if not self._is_running:
            _set_running_loop(self)
        # The task in whose step ``bury`` was called, such as that of a story.
        mourner = asyncio.current_task(self)
        if mourner is not None:
            _leave_task(self, mourner)
        try:
            for incarnation in graveyard:
                incarnation.end()
        finally:
            if mourner is not None:
                _enter_task(self, mourner)
            if not self._is_running:
                _set_running_loop(None)

    def abandon(self) -> None:
        """Forget everything pending, in every process: the simulation is over."""
        # All of them before the first cleanup runs: it must not wake a task of another process.
        for incarnation in self._incarnations:
            self.kill(incarnation)
        self.bury()
        # ``asyncio.Runner`` still runs a few steps on a loop that it closes.
        self.main = self.incarnate("main")

    def pending_tasks(self) -> list[str]:
        """A line for each task that is not done, in living incarnations."""
        return [
            f"{incarnation.name}: {task.describe()}"
            for incarnation in self._incarnations
            if incarnation.is_alive
            for task in incarnation.pending_tasks()
        ]

    # --- running ----------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until ``stop``; raises ``SimulationDeadlock`` when nothing can happen any more."""
        self._check_closed()
        if self._is_running or _get_running_loop() is not None:
            raise RuntimeError("an event loop runs already in this thread")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._own_generator, finalizer=self._close_generator)
        self._is_running = True
        _set_running_loop(self)
        heap = self._heap
        try:
            while not self._stopping:
                if not heap:
                    raise SimulationDeadlock("nothing can ever happen again", self.pending_tasks())
                # The heap has timers, and for each incarnation with work at most one turn that
                # counts.
                when_s, _, serial, item = heappop(heap)
                if isinstance(item, SimulatedHandle):
                    # A timer is due. Its callback joins what is ready in its process, and runs in
                    # the turn that is queued already, or once the process is no longer busy, or
                    # now.
                    incarnation = item.incarnation
                    if item.is_cancelled or not incarnation.is_alive:
                        continue
                    self._advance(when_s)
                    incarnation.ready.append(item)
                    if incarnation.turn_serial:
                        continue
                    if incarnation.busy_until_s > self.now_s:
                        self._queue_turn(incarnation)
                        continue
                else:
                    # A turn is due, unless another was queued in its place (``pause``).
                    incarnation = item
                    if incarnation.turn_serial != serial or not incarnation.is_alive:
                        continue
                    self._advance(when_s)
                self._run_turns(incarnation)
        finally:
            self._is_running = False
            # ``stop`` was called for this run: the next ``run_forever`` must not end at once.
            self._stopping = False
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _advance(self, when_s: float) -> None:
        # What was due while a process was busy comes later than it was due: time stays then.
        if when_s > self.now_s:
            if when_s > self._time_limit_s:
                too_long = f"more than {self._time_limit_s} virtual seconds"
                raise TimeLimitExceeded(too_long, self.pending_tasks())
            self.now_s = when_s

    def _run_turns(self, incarnation: Incarnation) -> None:
        """Run turns of one incarnation until it is idle or something else is due first."""
        heap = self._heap
        incarnation.turn_serial = -1  # neither 0 nor a serial: ``call_soon`` queues no turn now
        try:
            while True:
                self._run_ready(incarnation)
                cost_s = incarnation.turn_cost_s
                if cost_s:
                    # At least as long as a ``pause`` that began in this turn.
                    incarnation.busy_until_s = max(
                        incarnation.busy_until_s,
                        self.now_s + cost_s * (0.5 + self.random.random()),
                    )
                next_s = incarnation.busy_until_s
                # Going on at once, without the heap, is only right while nothing else is due: a
                # shortcut that saves a heap operation for most turns.
                if (
                    not incarnation.ready
                    or self._stopping
                    or (heap and heap[0][0] <= max(next_s, self.now_s))
                ):
                    return
                self._advance(next_s)
        finally:
            # Whatever was made ready after the last turn, by a callback of this one, gets a turn of
            # its own.
            incarnation.turn_serial = 0
            if incarnation.ready and incarnation.is_alive:
                self._queue_turn(incarnation)

    def _run_ready(self, incarnation: Incarnation) -> None:
        """Run what was ready when the turn began; what that makes ready waits for the next."""
        ready = incarnation.ready
        trace = self.trace
        append = trace.append
        append(self.now_s)
        append(incarnation.number)
        # Counted before they run: a turn that exceeds the bound does not begin.
        self.callbacks += len(ready)
        if self.callbacks > self._callbacks_max:
            too_many = f"more than {self._callbacks_max} callbacks ran"
            raise CallbackLimitExceeded(too_many, self.pending_tasks())
        # The length at the beginning: ``call_soon`` within the turn appends behind that.
        for _ in range(len(ready)):
            handle = ready.popleft()
            # Cancelled after it became ready. It counts as a callback, but not in the trace.
            if handle.is_cancelled:
                continue
            append(handle.serial)
            if trace.lines is not None:
                name = incarnation.name
                trace.record(f"{self.now_s:.9f} {name} {label_of(handle.callback)}")
            try:
                handle.context.run(handle.callback, *handle.arguments)
            except (SystemExit, KeyboardInterrupt, SimulationError):
                raise  # a mistake of the simulation or of a test ends the run
            except BaseException as error:  # noqa: BLE001 -- as asyncio: the handler is told
                self.call_exception_handler(
                    {
                        "message": f"exception in callback {label_of(handle.callback)}",
                        "exception": error,
                        "handle": handle,
                    }
                )
            if not incarnation.is_alive:
                return  # the callback killed its own process: the rest never runs
        # Once a turn, not for each number.
        trace.fold()

    def _queue_turn(self, incarnation: Incarnation) -> None:
        self._serial = serial = self._serial + 1
        incarnation.turn_serial = serial
        when_s = max(self.now_s, incarnation.busy_until_s)
        # The chance decides which of several processes that are ready now goes first.
        heappush(self._heap, (when_s, self.random.random(), serial, incarnation))

    def is_running(self) -> bool:
        """Whether the loop runs now."""
        return self._is_running

    def close(self) -> None:
        """Throw everything pending away; the loop cannot run again."""
        if self._is_running:
            raise RuntimeError("a running event loop cannot be closed")
        if not self._closed:
            self.abandon()
            self._closed = True
            self._heap.clear()

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that were not used to their end."""
        # A copy: a generator that is closed leaves the set.
        for generator in list(self._generators):
            await generator.aclose()

    def _own_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Python calls this in the context of the code that begins to use the generator.
        self._generators.add(generator)
        # An ``id`` that is used again is entered anew by the first step of the next generator.
        self._generator_owners[id(generator)] = CURRENT.get(self.main)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that was dropped before its end, in the process that began to use it.

        Where that process is dead, the generator goes without its cleanup.
        """
        owner = self._generator_owners.pop(id(generator), self.main)
        if owner.is_alive and not self._closed:
            self.call_soon(self.create_task, generator.aclose(), context=owner.context)

    # --- scheduling -------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` in the next turn of its incarnation, after all called sooner."""
        if context is None:
            context = copy_context()
        # The context decides, not the code that runs: a future resolved by one host wakes a task of
        # another in that one's process.
        incarnation = context.get(CURRENT) or self.main
        self._serial = serial = self._serial + 1
        handle = SimulatedHandle(callback, args, context, incarnation, serial, self.now_s)
        incarnation.ready.append(handle)
        if incarnation.is_alive and not incarnation.turn_serial:
            self._queue_turn(incarnation)
        return handle

    # There is but one thread (asyncio's signal handling calls this).
    call_soon_threadsafe = call_soon

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a serial number."""
        future: SimulatedFuture[Any] = SimulatedFuture(loop=self)
        self._serial = future.serial = self._serial + 1
        future.incarnation = CURRENT.get(self.main)
        return future

    def create_task(
        self,
        coro: Generator[Any, None, ResultT] | Coroutine[Any, Any, ResultT],
        *,
        name: object = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> asyncio.Task[ResultT]:
        """A task of the incarnation that ``context`` (default: the running one) belongs to."""
        self._check_closed()
        if context is None:
            context = copy_context()
        incarnation = context.get(CURRENT) or self.main
        self._serial = serial = self._serial + 1
        task = SimulatedTask(
            coro,
            loop=self,
            # asyncio counts its default names for the whole Python process: a second run would get
            # others.
            name=f"Task-{serial}" if name is None else str(name),
            context=context,
            serial=serial,
            incarnation=incarnation,
            eager_start=eager_start,
        )
        incarnation.tasks.append(task)
        # Pruning when the list has doubled keeps the cost of a task constant.
        if len(incarnation.tasks) >= incarnation.prune_at:
            incarnation.tasks = incarnation.pending_tasks()
            incarnation.prune_at = 2 * len(incarnation.tasks) + TASKS_BEFORE_PRUNING
        # Cleanup of a dead process started a task: it never runs, and goes with the next burial.
        if not incarnation.is_alive:
            _unregister_task(task)
            self._graveyard[incarnation] = None
        return task

    # --- errors -----------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that was not caught, unless its process is dead."""
        incarnation = CURRENT.get(self.main)
        # The process that failed is the source's, which need not be the one that runs.
        for what in ("handle", "task", "future"):
            source = context.get(what)
            if isinstance(source, SimulatedHandle | SimulatedTask | SimulatedFuture):
                incarnation = source.incarnation
        if not self._closed and incarnation.is_alive:
            context["host"] = incarnation.name
            self.failures.append(context)
            super().call_exception_handler(context)

    # --- what does not exist here -----------------------------------------------------------

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002
        func: Callable[[*ArgumentsT], object],
        *args: *ArgumentsT,  # noqa: ARG002
    ) -> NoReturn:
        """Refused: a thread would make the order of events depend on the machine.

        Names and sockets are refused by this too: asyncio resolves names in a thread.
        """
        what = f"run_in_executor({label_of(func)}) does not exist under simulation"
        raise NotSimulated(f"{what}: use the seams (Disk, Network, Coordination)")
