"""Runs one part as a process: open files, uvloop, signals, a bounded shutdown, exit codes.

``run_part(main)`` is the last line of every part's command. ``main`` opens its services with
``async with`` and then waits. SIGTERM, Ctrl-C or the supervisor's order cancel it, and leaving the
``async with`` blocks closes everything. After ``CLOSE_TIMEOUT_S`` the process ends in any case: a
supervisor waits for it, and everything that was acknowledged is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from geminga_runtime.errors import GemingaError
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE
from geminga_server.errors import ServerStartError
from geminga_server.open_files import LOW, RECOMMENDED, how_to_raise, raise_limit

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0


class ExitCode(IntEnum):
    """Exit codes of a part's process; the supervisor restarts it after anything but ``OK``."""

    OK = 0  # asked to end, and ended in order
    FAILED = 1  # an unexpected error; the log has its trace
    REFUSED = 2  # it cannot run like this: a setting, a port, no ZooKeeper; the log says what
    STUCK = 3  # asked to end, and killed itself after CLOSE_TIMEOUT_S


@dataclass(slots=True, eq=False)
class StopRequest:
    """A request to a part to end, made by a signal or the supervisor. Later ones change nothing."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    # Called at once: a part stops waiting for others before its services begin to close.
    callbacks: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    # Of the first request.
    reason: str = ""

    def ask(self, reason: str) -> None:
        """Ask the part to end now; ``reason`` goes to the log."""
        if not self.asked.is_set():
            # Before the event is set and the callbacks run: both may log it.
            self.reason = reason
            self.asked.set()
            for callback in self.callbacks:
                callback()

    async def wait(self) -> None:
        """Return when the part was asked to end."""
        await self.asked.wait()


PartMain = Callable[[StopRequest], Coroutine[Any, Any, None]]


def run_part(main: PartMain, *, close_timeout_s: float = CLOSE_TIMEOUT_S) -> int:
    """Run ``main`` to its end, or until it is asked to stop; returns the process's exit code."""
    # First: an event loop opens files of its own.
    prepare_open_files()
    try:
        loop_factory = uvloop_factory()
    except ServerStartError as error:
        log.error("part cannot start", extra={"reason": str(error)})  # noqa: TRY400 - no trace
        return ExitCode.REFUSED
    # Leaving it cancels tasks that ``main`` left behind, and closes the loop's threads.
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_run_until_stopped(main, close_timeout_s))


def prepare_open_files() -> None:
    """Raise the limit on open files as far as possible, and warn if it is still low.

    The parts of a supervisor inherit its limit; only the supervisor warns.
    """
    limit = raise_limit()
    if limit < LOW and CONTROL_SOCKET_VARIABLE not in os.environ:
        log.warning(
            "the limit on open files is low, and with it the number of connections",
            extra={
                "open_files": limit,
                "recommended": RECOMMENDED,
                "how": how_to_raise(RECOMMENDED),
            },
        )


def uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The maker of uvloop's event loops. Raises ``ServerStartError`` if uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - its absence is reported as what it is
    except ImportError as error:
        raise ServerStartError(
            "uvloop is not installed; install the servers with: pip install 'geminga[server]'"
        ) from error
    return uvloop.new_event_loop  # type: ignore[no-any-return,unused-ignore]


def is_uvloop_running() -> bool:
    """Whether the running event loop is uvloop's, as in every part."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop"


async def _run_until_stopped(main: PartMain, close_timeout_s: float) -> ExitCode:
    assert is_uvloop_running()
    # Made on the running loop, and before ``main`` begins: a signal that comes early is not lost.
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    # From here on a signal only asks: no line of the part is interrupted.
    for number in stop_signals():
        # Python's own handler for SIGINT would raise KeyboardInterrupt in the middle of any line.
        loop.add_signal_handler(number, stop.ask, f"signal {number.name}")
    # A task of its own, so that a part whose cleanup hangs can be left behind.
    work = loop.create_task(main(stop), name="part")
    asked = loop.create_task(stop.wait(), name="stop request")
    try:
        # ``wait`` cancels neither of the two, and raises no error of theirs.
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            log.info("part stops", extra={"reason": stop.reason})
            # The ``async with`` blocks of ``main`` close now, the one that opened last first.
            work.cancel()
            await asyncio.wait({work}, timeout=close_timeout_s)
            if not work.done():
                # No cleanup can be trusted to end: leave at once, with what is left to do as a
                # hint. ``os._exit`` flushes nothing by itself.
                tasks = sorted(task.get_name() for task in asyncio.all_tasks())
                facts = {"timeout_s": close_timeout_s, "tasks": tasks}
                log.error("part did not close in time", extra=facts)
                logging.shutdown()
                sys.stdout.flush()
                os._exit(ExitCode.STUCK)
    finally:
        asked.cancel()
    # ``work`` has ended, by itself or by the cancellation above. An error while closing counts too.
    error = None if work.cancelled() else work.exception()
    if error is None:
        return ExitCode.OK
    if isinstance(error, GemingaError):
        log.error("part cannot run", extra={"code": error.code, "reason": str(error)})
        return ExitCode.REFUSED
    log.error("part failed", exc_info=error)
    return ExitCode.FAILED


def stop_signals(*more: signal.Signals) -> list[signal.Signals]:
    """SIGTERM, and SIGINT and ``more`` unless this process was started with them ignored.

    nohup ignores SIGHUP, and a shell without job control ignores SIGINT for what it starts in the
    background: a Ctrl-C is then meant for other processes.
    """
    optional = (signal.SIGINT, *more)
    wanted = [number for number in optional if signal.getsignal(number) is not signal.SIG_IGN]
    return [signal.SIGTERM, *wanted]
