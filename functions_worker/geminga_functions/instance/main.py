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
from geminga_functions.instance.serving import WorkerChannel, failure_of, loop_runner, run
from geminga_runtime.clock import SystemClock

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run one instance; exits with 1 where it failed."""
    end_with(int(sys.argv[2]))
    channel = WorkerChannel(socket.socket(fileno=int(sys.argv[1])), SystemClock(), end_group)
    try:
        with loop_runner() as runner:
            runner.run(run_alone(channel))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker is told
        channel.send(failure_of(error))
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


def end_with(parent: int) -> None:
    """Have the kernel end this process when its worker ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        end_group("the worker is gone")
