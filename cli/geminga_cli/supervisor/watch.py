"""Tells the event loop when a child process ends, without a thread and without waiting for it."""

from __future__ import annotations

import asyncio
import os

from geminga_cli.supervisor.process import Process

# Where the system cannot wake us: how often we look.
POLL_S = 0.05


def exit_of(process: Process) -> asyncio.Future[int]:
    """A future of the process's return code, as ``Process.poll`` gives it."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[int] = loop.create_future()
    descriptor = _open_pidfd(process.pid)
    if descriptor is None:
        _poll(process, exited)
        return exited

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        _look(process, exited)

    loop.add_reader(descriptor, ended)
    return exited


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is no such thing.

    Python may know the call where the kernel does not (before Linux 5.3), or a container's filter
    forbids it.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _poll(process: Process, exited: asyncio.Future[int]) -> None:
    if not _look(process, exited):
        asyncio.get_running_loop().call_later(POLL_S, _poll, process, exited)


def _look(process: Process, exited: asyncio.Future[int]) -> bool:
    """Settle the future if the process has ended; whether there is nothing more to look for."""
    returncode = process.poll()
    if returncode is not None and not exited.done():
        exited.set_result(returncode)
    return exited.done()
