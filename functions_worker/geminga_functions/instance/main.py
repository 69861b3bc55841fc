"""An instance in a process of its own: ``python -m geminga_functions.instance DESCRIPTOR PARENT``.

``DESCRIPTOR`` is its end of a socket pair, over which its worker tells it what to run, and how
long it may; ``PARENT`` is the worker's process id. Without a lease, or without its worker, the
process ends at once, and all that it started with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress

from geminga_functions.instance.messages import Stopped
from geminga_functions.instance.serving import (
    WorkerChannel,
    ignore_lease,
    loop_runner,
    run,
)
from geminga_runtime.clock import SystemClock

IS_LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
# <time.h> and <signal.h> of Linux.
CLOCK_MONOTONIC = 1
TIMER_ABSTIME = 1
SIGEV_SIGNAL = 0
NANOSECONDS = 1_000_000_000


def main() -> None:
    """Run one instance; exits with 1 where it failed."""
    end_with(int(sys.argv[2]))
    arm = DeathTimer().arm if IS_LINUX else ignore_lease
    sock = socket.socket(fileno=int(sys.argv[1]))
    channel = WorkerChannel(sock, SystemClock(), end_group, arm)
    try:
        with loop_runner() as runner:
            runner.run(run_alone(channel))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker is told
        channel.fail(error)
        code = 1
    else:
        channel.send(Stopped())
        code = 0
    sys.stdout.flush()
    # Not sys.exit: threads of the user's would be waited for.
    os._exit(code)


async def run_alone(channel: WorkerChannel) -> None:
    """Run the instance that the worker asks for. Raises what it fails with."""
    stop = asyncio.get_running_loop().create_future()
    await run(channel.receive_start(), channel, stop, is_alone=True)


def end_group(reason: str) -> None:
    """End this process and all that it started, at once."""
    with suppress(OSError):
        os.write(2, f"instance ends: {reason}\n".encode())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class SignalEvent(ctypes.Structure):
    """``struct sigevent``."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class TimerTimes(ctypes.Structure):
    """``struct itimerspec``: how often, and when first."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class DeathTimer:
    """A timer by which the kernel kills this process. Code that holds the interpreter's lock, an
    endless regular expression say, keeps every thread of Python's from looking at the lease; and
    where the worker stands still at the same time, nothing else would end the instance. The
    function may use ``signal.alarm`` and ``setitimer``: this is none of those."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = SignalEvent(signal=signal.SIGKILL, notify=SIGEV_SIGNAL)
        self._check(
            self._libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))
        )

    def arm(self, until_s: float) -> None:
        """Let it go off at ``until_s`` of the monotonic clock, and not before."""
        first_s, first_ns = divmod(int(until_s * NANOSECONDS), NANOSECONDS)
        times = TimerTimes(0, 0, first_s, first_ns)
        self._check(self._libc.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(times), None))

    def _check(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def end_with(parent: int) -> None:
    """Have the kernel end this process when its worker ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        end_group("the worker is gone")
