"""Proves that the kernel ends an instance at the end of its lease, whatever its code does."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from geminga_functions.instance.messages import INSTANCE_CHANNEL, Lease, Start

# An instance whose code holds the interpreter's lock after a while: so no other thread runs.
HOLDING = """
import asyncio, ctypes, socket, sys, time
from geminga_functions.instance.main import DeathTimer, end_group
from geminga_functions.instance.worker_link import WorkerChannel
from geminga_runtime.clock import SystemClock

sock = socket.socket(fileno=int(sys.argv[1]))
channel = WorkerChannel(sock, SystemClock(), end_group, DeathTimer().arm)
channel.receive_start()
loop = asyncio.new_event_loop()
channel.serve(loop, loop.create_future())
time.sleep(float(sys.argv[2]))
sock.send(b"holds the lock")
ctypes.PyDLL(None).sleep(600)
"""
TIMEOUT_S = 30.0


@contextmanager
def holding(free_s: float) -> Generator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """The worker's end of the channel, and the instance, which holds the lock after ``free_s``."""
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_S)
    with ours, theirs:
        command = [sys.executable, "-c", HOLDING, str(theirs.fileno()), str(free_s)]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), start_new_session=True)
        try:
            yield ours, process
        finally:
            process.kill()
            process.wait()


def start(lease_until_s: float) -> bytes:
    return INSTANCE_CHANNEL.encode(
        Start(b"", 0, 1, "w", "c", "", "", "", "", "", lease_until_s=lease_until_s)
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
@pytest.mark.parametrize("more_s", [0.0, 0.5])
def test_code_that_holds_the_interpreter_ends_with_the_lease(more_s: float) -> None:
    with holding(more_s / 2) as (channel, process):
        # It has to import itself first; so long nothing looks at the lease.
        until_s = time.monotonic() + 2.0
        channel.send(start(until_s))
        if more_s:
            until_s += more_s
            channel.send(INSTANCE_CHANNEL.encode(Lease(until_s)))
        assert channel.recv(100) == b"holds the lock"
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        assert 0 <= time.monotonic() - until_s < 1.0
