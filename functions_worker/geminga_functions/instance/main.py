"""An instance in a process of its own: ``python -m geminga_functions.instance DESCRIPTOR PARENT``.

``DESCRIPTOR`` is the process's end of a socket pair, over which the worker sends what to run and
for how long; ``PARENT`` is the worker's process id. When its lease or its worker ends, the process
ends at once, together with all that it started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress

from geminga_functions.instance.messages import Stopped
from geminga_functions.instance.worker_link import WorkerChannel, loop_runner, run
from geminga_runtime.clock import SystemClock

# prctl(2) and the timer below are called with Linux's numbers and layouts. On other systems the
# thread of the channel alone ends the instance.
IS_LINUX = sys.platform == "linux"
# <sys/prctl.h>: which signal the process gets when its parent ends.
PR_SET_PDEATHSIG = 1
# <time.h> and <signal.h> of Linux. CLOCK_MONOTONIC is what ``SystemClock.monotonic`` reads, the
# same for all processes of the machine: the worker's end of a lease is armed as it is.
CLOCK_MONOTONIC = 1
TIMER_ABSTIME = 1
SIGEV_SIGNAL = 0
NANOSECONDS = 1_000_000_000


def main() -> None:
    """Run one instance; exits with 1 if it failed."""
    # First of all: from here on the process cannot outlive its worker, with which the kernel kills
    # it. The worker may have ended before prctl, which then never sends the signal.
    if IS_LINUX:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):
        end_group("the worker is gone")
    # The timer exists before the channel, whose first message sets the first lease and arms it.
    arm = DeathTimer().arm if IS_LINUX else None
    sock = socket.socket(fileno=int(sys.argv[1]))
    channel = WorkerChannel(sock, SystemClock(), end_group, arm)
    try:
        # ``receive_start`` blocks here, before the runner has made a loop; no code of the function
        # has been imported until then.
        with loop_runner() as runner:
            runner.run(run(channel.receive_start(), channel, is_alone=True))
    except BaseException as error:  # noqa: BLE001 - reported, whatever it is
        channel.fail(error)
        code = 1
    else:
        # ``run`` has closed the instance and its client by now, so the worker may start the next
        # run as soon as the process is gone.
        channel.send(Stopped())
        code = 0
    sys.stdout.flush()
    # Not sys.exit, which waits for threads that the user's code has started.
    os._exit(code)


def end_group(reason: str) -> None:
    """Kill this process and all that it started, at once."""
    with suppress(OSError):
        os.write(2, f"instance ends: {reason}\n".encode())
    # The worker starts the process as the leader of a group. Started in another way, it would kill
    # the group of whatever has started it.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


# Linux lays it out in 64 bytes; the padding stands for a union that SIGEV_SIGNAL does not use.
#
# +-------+--------+--------+---------+
# | value | signal | notify | padding |
# |  u64  |  i32   |  i32   |  48 B   |
# +-------+--------+--------+---------+
class SignalEvent(ctypes.Structure):
    """``struct sigevent``."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class TimerTimes(ctypes.Structure):
    """``struct itimerspec``: the interval, and the first time."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class DeathTimer:
    """A timer with which the kernel kills this process at the end of its lease.

    Code that holds the interpreter's lock, such as an endless regular expression, keeps every
    Python thread from checking the lease. If the worker is paused at the same time, nothing else
    ends the instance. The function may use ``signal.alarm`` and ``setitimer``, so this is a POSIX
    timer of its own.
    """

    def __init__(self) -> None:
        # ``use_errno``: ctypes keeps the call's errno for ``_check``, which the interpreter could
        # overwrite.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        # A timer of the process, not of a thread: no thread has to be scheduled for it, and SIGKILL
        # cannot be caught. Processes that the function forks do not inherit it.
        event = SignalEvent(signal=signal.SIGKILL, notify=SIGEV_SIGNAL)
        self._check(
            self._libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))
        )

    def arm(self, until_s: float) -> None:
        """Set the timer to ``until_s`` of the monotonic clock, in place of any earlier setting."""
        first_s, first_ns = divmod(int(until_s * NANOSECONDS), NANOSECONDS)
        # An interval of zero: the timer goes off once. TIMER_ABSTIME with a time that has passed
        # would set it off at once, which ``WorkerChannel.receive_start`` avoids.
        times = TimerTimes(0, 0, first_s, first_ns)
        self._check(self._libc.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(times), None))

    def _check(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
