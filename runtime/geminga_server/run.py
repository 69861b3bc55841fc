"""Runs one part as a process: open files, uvloop, signals, an end in time, exit codes.

``run_part(main)`` is the last line of every part's command. ``main`` opens its services with
``async with`` and then waits; SIGTERM, Ctrl-C or the supervisor's order cancel it, and leaving the
``async with`` blocks closes everything. A close that takes longer than ``CLOSE_TIMEOUT_S`` is cut
off, because a supervisor waits for it, and everything that was acknowledged is on disk anyway.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, NoReturn

from geminga_runtime.errors import GemingaError
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE
from geminga_server.errors import ServerStartError
from geminga_server.open_files import LOW, RECOMMENDED, how_to_raise, raise_limit

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0


class ExitCode(IntEnum):
    """What a part's process ends with; the supervisor restarts it after anything but ``OK``."""

    OK = 0  # asked to end, and ended in order
    FAILED = 1  # an error nobody expected; the log has its trace
    REFUSED = 2  # it cannot run like this: a setting, a port, no ZooKeeper; the log says what
    STUCK = 3  # asked to end, and cut off after CLOSE_TIMEOUT_S


class StopRequest:
    """How a part is asked to end, whoever asks. Asking again changes nothing."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []
        self.reason = ""

    def ask(self, reason: str) -> None:
        """End now; ``reason`` goes to the log."""
        if not self._asked.is_set():
            self.reason = reason
            self._asked.set()
            for callback in self._callbacks:
                callback()

    def on_asked(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when somebody asks, before anything closes."""
        self._callbacks.append(callback)

    async def wait(self) -> None:
        """Return when somebody asked."""
        await self._asked.wait()


PartMain = Callable[[StopRequest], Coroutine[Any, Any, None]]


def run_part(main: PartMain, *, close_timeout_s: float = CLOSE_TIMEOUT_S) -> int:
    """Run ``main`` to its end, or until it is asked to stop; returns the process's exit code."""
    prepare_open_files()
    try:
        loop_factory = uvloop_factory()
    except ServerStartError as error:
        log.error("part cannot start", extra={"reason": str(error)})  # noqa: TRY400 - no trace
        return ExitCode.REFUSED
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_run_until_stopped(main, close_timeout_s))


def prepare_open_files() -> None:
    """Raise the limit on open files as far as it goes, and say where it is low all the same.

    A supervisor's parts have its limit, and leave it to the supervisor to say so.
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
    """Makes uvloop's event loops. Raises ``ServerStartError`` where uvloop is not installed."""
    try:
        import uvloop  # noqa: PLC0415 - its absence is reported as what it is
    except ImportError as error:
        raise ServerStartError(
            "uvloop is not installed; install the servers with: pip install 'geminga[server]'"
        ) from error
    return uvloop.new_event_loop  # type: ignore[no-any-return,unused-ignore]


def is_uvloop_running() -> bool:
    """Whether the running event loop is uvloop's: every part's is, and a test asks."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop"


async def _run_until_stopped(main: PartMain, close_timeout_s: float) -> ExitCode:
    assert is_uvloop_running()
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, _on_signal, stop, number)
    work = loop.create_task(main(stop), name="part")
    asked = loop.create_task(stop.wait(), name="stop request")
    try:
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            log.info("part stops", extra={"reason": stop.reason})
            work.cancel()
            await asyncio.wait({work}, timeout=close_timeout_s)
            if not work.done():
                _cut_off(close_timeout_s)
    finally:
        asked.cancel()
    return _exit_code(work)


def stop_signals(*more: signal.Signals) -> list[signal.Signals]:
    """SIGTERM, and SIGINT and ``more`` where whoever started us did not have them ignored.

    nohup does so with SIGHUP, and a shell without job control with the SIGINT of what it starts
    in the background: a Ctrl-C is then meant for others.
    """
    wanted = [number for number in (signal.SIGINT, *more) if not _is_ignored(number)]
    return [signal.SIGTERM, *wanted]


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def _on_signal(stop: StopRequest, number: signal.Signals) -> None:
    stop.ask(f"signal {number.name}")


def _exit_code(work: asyncio.Task[None]) -> ExitCode:
    if work.cancelled():
        return ExitCode.OK
    error = work.exception()
    if error is None:
        return ExitCode.OK
    if isinstance(error, GemingaError):
        log.error("part cannot run", extra={"code": error.code, "reason": str(error)})
        return ExitCode.REFUSED
    log.error("part failed", exc_info=error)
    return ExitCode.FAILED


def _cut_off(close_timeout_s: float) -> NoReturn:
    tasks = sorted(task.get_name() for task in asyncio.all_tasks())
    log.error("part did not close in time", extra={"timeout_s": close_timeout_s, "tasks": tasks})
    logging.shutdown()
    sys.stdout.flush()
    os._exit(ExitCode.STUCK)
