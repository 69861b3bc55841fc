"""Long-lived objects: opened and closed in order, owners of the tasks they start.

A ``Service`` is used with ``async with``. It owns what it opened (``_open`` registers that on an
exit stack) and the tasks it spawned; leaving the block ends the tasks, then closes what was opened,
last first. There is no ``stop`` to forget.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)

# Lasting work that was ended by an error begins anew after so many seconds.
RESTART_S = 1.0
# A task that still runs so many seconds after it was cancelled is cancelled again. Cleanup takes
# less.
CANCEL_AGAIN_S = 5.0


# The life of a service; a failed opening goes straight to closing:
#
#     made --> opening (``_open``) --> open --> closing: tasks, then what was opened --> closed
#                   |                              ^
#                   +---------- fails -------------+
class Service:
    """Base of long-lived objects. Subclasses override ``_open`` and register what must close.

    Of some there are hundreds of thousands. So a stack and a dictionary of tasks are only made when
    they are needed. The classes of such services have ``__slots__``, and override ``_open_parts``
    and ``_close_parts`` instead of ``_open``.
    """

    __slots__ = ("_exit_stack", "_is_closing", "_tasks", "faults")

    def __init__(self) -> None:
        # Leaving the block has begun. Subclasses read it to start nothing new.
        self._is_closing = False
        # None in services that override ``_open_parts``.
        self._exit_stack: AsyncExitStack | None = None
        # In the order of spawning: a set's order would differ from run to run of a simulation.
        self._tasks: dict[asyncio.Task[object], None] | None = None
        # How often lasting work was ended by an unexpected error.
        self.faults: int = 0

    async def __aenter__(self) -> Self:
        # A service may be opened again after it was closed.
        self._is_closing = False
        try:
            await self._open_parts()
        except BaseException:
            # Python calls no ``__aexit__`` for a block that was never entered.
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _open_parts(self) -> None:
        """Open this service; what this raises is raised again after ``_close_parts``."""
        # Kept before ``_open`` runs: what it has opened when it fails is closed by
        # ``_close_parts``.
        self._exit_stack = AsyncExitStack()
        await self._open(self._exit_stack)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open what this service needs; what is pushed on ``stack`` closes in reverse order."""

    async def _close_parts(self) -> None:
        """Close what ``_open_parts`` has opened, all or some. A second call does nothing."""
        if self._exit_stack is not None:
            await self._exit_stack.aclose()

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> asyncio.Task[object]:
        """Run ``work`` as a task of this service: logged when it fails, cancelled on close.

        A service that is closing runs nothing new: the task comes back already cancelled.
        """
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work, name=name)
        if self._tasks is None:
            self._tasks = {}
        # The loop itself keeps only weak references to tasks: one that nothing holds may vanish
        # half way.
        self._tasks[task] = None
        # Called in a later turn, also for a task that is cancelled before it begins.
        task.add_done_callback(self._task_done)
        # Cancelled before its first step: no line of the work runs.
        if self._is_closing:
            task.cancel()
        return task

    def spawn_lasting(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str
    ) -> asyncio.Task[object]:
        """``spawn`` work that lasts until the service closes. An error that it does not handle is
        logged and counted, and the work begins anew.
        """

        async def go_on() -> None:
            while not self._is_closing:
                # Cancellation is no ``Exception``: it ends the loop.
                try:
                    await work()
                except Exception:
                    # For metrics: work that fails again and again would show in the log alone.
                    self.faults += 1
                    log.exception("background work failed and begins anew", extra={"task": name})
                # Also after work that returned: a mistake in it must not turn into a busy loop.
                await asyncio.sleep(RESTART_S)

        return self.spawn(go_on(), name=name)

    def spawn_every(
        self, period_s: float, work: Callable[[], Coroutine[Any, Any, None]], *, name: str
    ) -> asyncio.Task[object]:
        """``spawn_lasting`` work that is repeated, with a pause of ``period_s`` seconds before each
        time. An error ends that one time only.
        """

        # After an error the next time comes ``RESTART_S`` later than usual: the pause comes first
        # again.
        async def repeat() -> None:
            while True:
                await asyncio.sleep(period_s)
                await work()

        return self.spawn_lasting(repeat, name=name)

    def _task_done(self, task: asyncio.Task[object]) -> None:
        if self._tasks is not None:
            self._tasks.pop(task, None)
            # An empty dictionary takes memory, in hundreds of thousands of services.
            if not self._tasks:
                self._tasks = None
        # Asked before ``exception``, which would raise for a cancelled task.
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task failed", exc_info=error, extra={"task": task.get_name()})

    async def _close(self) -> None:
        # From here on ``spawn`` only makes tasks that are cancelled at once.
        self._is_closing = True
        # Tasks first: they use what the service has opened.
        try:
            await self._end_tasks()
        finally:
            await self._close_parts()

    async def _end_tasks(self) -> None:
        """Cancel the tasks, the youngest first, and those that their cleanup still spawns; wait for
        all. Subclasses call this to close in an order of their own.

        A task whose cleanup fails may take that error for an ordinary one and go on: what still
        runs after ``CANCEL_AGAIN_S`` is cancelled again.
        """
        current = asyncio.current_task()  # a task that closes its service must not wait for itself
        while tasks := [
            task for task in reversed(self._tasks or {}) if task is not current and not task.done()
        ]:
            for task in tasks:
                task.cancel()
            # Not ``gather``, which would raise an error of the first one and leave the others.
            await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)
