"""One life of one simulated process: what is ready to run in it, and whether it still lives.

Which incarnation a callback belongs to is a context variable, set where a host's main task is made
and inherited by everything that task starts. The loop reads it from the context that a callback was
scheduled with, so a future resolved by one host wakes a task of another in the right place. Once
``is_alive`` is false, nothing of the incarnation runs again, except for the cleanup of its tasks
(``end``), which Python cannot leave out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar, cast

ResultT = TypeVar("ResultT")

# Done tasks are thrown out of an incarnation's list when it has doubled, from this length on.
TASKS_BEFORE_PRUNING = 64
# Tasks of the dead that go on waiting in their cleanup are cancelled again, this often.
CLEANUP_ROUNDS_MAX = 64
# What cleanup may do at all: some of it turns in circles when nothing answers.
CLEANUP_CALLBACKS_MAX = 100_000


@dataclass(slots=True, eq=False)
class Pace:
    """How a machine's monotonic clock goes, beside the virtual time of the loop: at its own rate,
    which may change; it never jumps."""

    # Seconds of the machine's clock for each second of virtual time. ``TimerLoop.change_pace`` sets
    # all three, and the timers that go by them.
    rate: float = 1.0
    # The moment of the last change of the rate, in virtual time and by the clock.
    since_s: float = 0.0
    local_s: float = 0.0

    def local(self, now_s: float) -> float:
        """What the clock shows at a virtual time."""
        return self.local_s + (now_s - self.since_s) * self.rate

    def when(self, local_s: float) -> float:
        """The virtual time at which the clock shows this."""
        return self.since_s + (local_s - self.local_s) / self.rate


class Incarnation:
    """A process: its queue of ready callbacks, its pace, its tasks.

    ``turn_cost_s`` is how long, about, one turn of its event loop keeps it busy; what arrives
    meanwhile waits for the next turn, as in a real loop. 0 makes all of a chain of callbacks
    happen at one instant.
    """

    __slots__ = (
        "busy_until_s",
        "context",
        "is_alive",
        "name",
        "number",
        "pace",
        "prune_at",
        "ready",
        "tasks",
        "turn_cost_s",
        "turn_serial",
    )

    def __init__(
        self, name: str, number: int, turn_cost_s: float, pace: Pace | None = None
    ) -> None:
        self.name = name
        # Of the machine's clock, by which its timers go; None: virtual time.
        self.pace = pace
        # Counts the incarnations of a loop; the trace tells them apart by it.
        self.number = number
        self.turn_cost_s = turn_cost_s
        self.is_alive = True
        # What runs in the next turn, in this order.
        self.ready: deque[SimulatedHandle] = deque()
        # Virtual time before which no turn begins: the last turn, or a pause, lasts until then.
        # Work that arrives before stays in ``ready``.
        self.busy_until_s = 0.0
        # Serial of the turn that waits in the loop's heap; 0: none does; -1: one runs now. At most
        # one turn of an incarnation counts: an entry of the heap with another serial is void.
        self.turn_serial = 0
        # Tasks in the order of creation; some of them are done already. The loop keeps them alive
        # here as long as they run: garbage collection must not decide anything.
        self.tasks: list[SimulatedTask[Any]] = []
        # The length of that list at which the loop throws done tasks out of it.
        self.prune_at = TASKS_BEFORE_PRUNING
        # A copy, in which ``CURRENT`` is this one; the caller's own context stays as it is.
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def end(self) -> None:
        """Throw the tasks of the dead away.

        Python cannot leave their cleanup out, so it runs now, as if each of its waits were
        cancelled, in a world where nothing answers: every seam sees a dead incarnation, no timer
        is set, no callback made but those of tasks and futures. (Closing the coroutines instead
        would not end those that wait in their cleanup, and the garbage collector would complain
        of them one by one.)
        """
        callbacks = 0
        for _ in range(CLEANUP_ROUNDS_MAX):
            pending = self.pending_tasks()
            if not pending or callbacks >= CLEANUP_CALLBACKS_MAX:
                break
            # All of them, before any runs: a task whose cleanup waits for another finds that one
            # cancelled, too.
            for task in pending:
                task.cancel()
            while self.ready and callbacks < CLEANUP_CALLBACKS_MAX:
                handle = self.ready.popleft()
                # Only steps of tasks, and wake-ups of those that wait for a future, are run; what
                # else was called for would act in the name of the dead.
                arguments = handle.arguments
                tells_future_done = len(arguments) == 1 and isinstance(arguments[0], asyncio.Future)
                if tells_future_done or isinstance(
                    getattr(handle.callback, "__self__", None), asyncio.Task
                ):
                    callbacks += 1
                    with suppress(Exception):  # an error of the dead is reported to no handler
                        handle.context.run(handle.callback, *arguments)
        self.ready.clear()
        # What still waits after all rounds is closed as a coroutine, and not warned of.
        for task in self.tasks:
            task.forget()
        self.tasks.clear()

    def pending_tasks(self) -> list[SimulatedTask[Any]]:
        """The tasks not done, oldest first."""
        return [task for task in self.tasks if not task.done()]


# Unset outside of a simulated loop's callbacks: that counts as ``main``.
CURRENT: ContextVar[Incarnation] = ContextVar("geminga_incarnation")


def is_dead_here() -> bool:
    """Whether the running code belongs to an incarnation that was killed.

    Seams ask this before they act: the cleanup of a dead process, which Python runs when its
    coroutines are thrown away, must reach no disk, no network and no coordination service.
    """
    incarnation = CURRENT.get(None)
    return incarnation is not None and not incarnation.is_alive


@dataclass(slots=True, eq=False, repr=False)
class SimulatedHandle(asyncio.TimerHandle):
    """A callback with its context and the incarnation it runs in.

    The fields of asyncio's handle are not used: these are all that there is.
    """

    callback: Callable[..., object]
    arguments: tuple[Any, ...]
    context: Context
    incarnation: Incarnation
    serial: int
    # By the clock of ``pace``, or in virtual time.
    when_s: float
    pace: Pace | None = None
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Never run the callback."""
        self.is_cancelled = True
        # The handle stays in the heap until it is due: what it would have called is let go now.
        self.callback = do_nothing
        self.arguments = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Virtual seconds at which it is due."""
        return self.when_s

    def __hash__(self) -> int:
        return self.serial

    # The base compares by its own fields.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self.serial} of {self.incarnation.name} at {self.when_s}>"


def do_nothing() -> None:
    """The callback of a cancelled handle: it keeps nothing alive."""


class SimulatedTask(asyncio.Task[ResultT]):
    """A task that hashes by its serial number: sets of tasks have one order in every run."""

    def __init__(
        self,
        work: Generator[Any, None, ResultT] | Coroutine[Any, Any, ResultT],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context,
        serial: int,
        incarnation: Incarnation,
        eager_start: bool | None = None,
    ) -> None:
        # Python 3.11's tasks know no ``eager_start``.
        options: dict[str, Any] = {} if eager_start is None else {"eager_start": eager_start}
        # These stand before asyncio's own constructor, which schedules the first step.
        self.serial = serial
        self.context = context
        self.incarnation = incarnation
        super().__init__(work, loop=loop, name=name, context=context, **options)

    def __hash__(self) -> int:
        return self.serial

    def forget(self) -> None:
        """Make Python drop this task without a warning, whatever state it is in."""
        self._log_destroy_pending = False
        if self.done():
            if not self.cancelled():
                self.exception()  # marks it as retrieved
            return
        # None in a task that never began (Python 3.12 and later).
        work = cast("Coroutine[Any, Any, ResultT] | None", self.get_coro())
        if work is not None:
            with suppress(Exception, asyncio.CancelledError):
                self.context.run(work.close)

    def describe(self) -> str:
        """The task's name and where it waits: ``writer at ledger.py:120 in flush``."""
        frames = self.get_stack(limit=None)
        if not frames:
            return self.get_name()
        code = frames[-1].f_code
        file_name = code.co_filename.rsplit("/", 1)[-1]
        return f"{self.get_name()} at {file_name}:{frames[-1].f_lineno} in {code.co_name}"


class SimulatedFuture(asyncio.Future[ResultT]):
    """A future that hashes by its serial number, as the tasks do."""

    # The loop sets both when it has made the future: without a constructor in Python that takes
    # half of the time.
    serial: int
    incarnation: Incarnation

    def __hash__(self) -> int:
        return self.serial
