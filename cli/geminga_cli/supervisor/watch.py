"""Reports the end of a child process to the event loop, without a thread and without blocking."""

from __future__ import annotations

import asyncio
import os

from geminga_cli.supervisor.process import Process

# How often the process is checked where the kernel cannot report its end.
POLL_S = 0.05


def exit_of(process: Process) -> asyncio.Future[int]:
    """A future of the process's return code, as ``Process.poll`` gives it."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[int] = loop.create_future()
    # A descriptor that becomes readable when the process ends. Python may know the call where the
    # kernel does not (before Linux 5.3), or where a container's filter forbids it.
    descriptor: int | None = None
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            descriptor = None
    if descriptor is None:
        _poll(process, exited)
        return exited

    def ended() -> None:
        # First: the descriptor stays readable, and its number may be another file's after it is
        # closed.
        loop.remove_reader(descriptor)
        os.close(descriptor)
        _settle(process, exited)

    loop.add_reader(descriptor, ended)
    return exited


def _poll(process: Process, exited: asyncio.Future[int]) -> None:
    if not _settle(process, exited):
        asyncio.get_running_loop().call_later(POLL_S, _poll, process, exited)


def _settle(process: Process, exited: asyncio.Future[int]) -> bool:
    """Set the result if the process has ended; returns whether the future is done."""
    # This also reaps the process (waitpid): until then its number is not given to another one, so a
    # signal sent meanwhile reaches no stranger.
    returncode = process.poll()
    # The future is done early where the waiting side was cancelled.
    if returncode is not None and not exited.done():
        exited.set_result(returncode)
    return exited.done()
