"""An event loop in a thread of its own, for programs that have none: what ``geminga.sync`` runs on.

Other threads hand work over and wait for its result. The difficult part is ends: a caller that
gives up (Ctrl-C, a time-out), a client that another thread closes, a program that forgets to close.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from geminga.errors import Closed

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")


# Which thread does what:
#
#    a caller's thread                          the loop's thread
#    run ─ _hand_over, under the lock ────────▶ _Call.run: the work, with its timeout
#        ─ waits ◀───────── a concurrent future ─┘
#        ─ gives up (Ctrl-C): is_given_up ────▶ _Call.cancel
#    stop ─ _is_over, under the lock ─────────▶ the loop stops, the runner cancels all tasks
#        ─ joins ◀──────────────────────────────┘
#
# Work is handed over before the loop is told to stop, or not at all, so that every caller gets an
# answer: a result, the error of the work, or ``Closed``.
class LoopThread:
    """Runs coroutines for other threads, until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # Held while work is handed over, and while the loop is stopped: work that was handed over
        # before the end is done or cancelled, and none is handed over afterwards.
        self._lock = threading.Lock()
        self._is_over = False
        # A daemon, so that a program that forgets to close its client still ends.
        self._thread = threading.Thread(target=self._serve, name="geminga.sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def run(self, work: Coroutine[Any, Any, AnswerT], timeout_s: float | None = None) -> AnswerT:
        """Run ``work`` on the loop, and wait for its result.

        Raises what ``work`` raises, ``TimeoutError`` after ``timeout_s``, ``Closed`` once the loop
        is stopped, and ``RuntimeError`` in the loop's own thread, which would wait for itself.
        """
        call = _Call(work, timeout_s)
        try:
            return self._hand_over(call).result()
        except concurrent.futures.CancelledError:
            raise Closed("the client") from None  # by another thread, during the wait
        except BaseException:
            # Ctrl-C cancels the work, too. It may come before there is a future to cancel, so the
            # work itself checks whether its caller has given up.
            call.is_given_up = True
            with suppress(RuntimeError):  # the loop is over
                self._loop.call_soon_threadsafe(call.cancel)
            raise

    def _hand_over(self, call: _Call[AnswerT]) -> concurrent.futures.Future[AnswerT]:
        """Begin the work on the loop. Work that cannot begin is closed, or Python would warn that
        it was never awaited."""
        try:
            self._check_caller()
        except RuntimeError:
            call.work.close()
            raise
        with self._lock:
            if not self._is_over:
                return asyncio.run_coroutine_threadsafe(call.run(), self._loop)
        call.work.close()
        raise Closed("the client")

    def call(self, function: Callable[P, AnswerT], *args: P.args, **options: P.kwargs) -> AnswerT:
        """Call ``function`` in the thread of the loop, and wait for what it returns."""

        async def work() -> AnswerT:
            return function(*args, **options)

        return self.run(work())

    def open(self, opening: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Await what ``opening`` returns. It is called in the thread of the loop: what is opened
        finds its loop there."""

        async def work() -> AnswerT:
            return await opening()

        return self.run(work())

    def stop(self) -> None:
        """End the loop, and cancel what runs on it. Stopping twice is harmless."""
        self._check_caller()
        with self._lock:
            is_first, self._is_over = not self._is_over, True
        if is_first:
            # The runner then cancels all tasks, and closes the loop, in its own thread.
            self._loop.call_soon_threadsafe(self._loop.stop)
        # Also for a second caller: the thread has ended when ``stop`` returns.
        self._thread.join()

    def _check_caller(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback of geminga.sync must not wait for the client it is of")


@dataclass(slots=True, eq=False)
class _Call(Generic[AnswerT]):
    """Work that a thread waits for, or has given up."""

    work: Coroutine[Any, Any, AnswerT]
    timeout_s: float | None
    # Set by the caller's thread, read by the loop's.
    is_given_up: bool = False
    task: asyncio.Task[Any] | None = None

    async def run(self) -> AnswerT:
        """Do the work, in the loop."""
        # Set before the check: a caller that gives up in between finds the task, and cancels it.
        self.task = asyncio.current_task()
        if self.is_given_up:
            self.work.close()
            # As if the task had been cancelled already.
            raise asyncio.CancelledError
        async with asyncio.timeout(self.timeout_s):
            return await self.work

    def cancel(self) -> None:
        """End the work, in the loop; what is done stays done."""
        if self.task is not None:
            self.task.cancel()
