"""Proves that the end of a child is noticed, with the kernel's help and without it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys

import pytest

from geminga_cli.supervisor.process import Command, Process
from geminga_cli.supervisor.watch import exit_of

WAIT_S = 60


def child(code: str) -> Process:
    return Process(Command([sys.executable, "-c", code], os.environ))


def refuse(_pid: int) -> int:
    """As a kernel before Linux 5.3, or a container that forbids the call."""
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.fixture(params=["told by the kernel", "Python knows no such call", "nor does the kernel"])
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Python knows no such call":
        monkeypatch.delattr(os, "pidfd_open")
    if request.param == "nor does the kernel":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    return str(request.param)


@pytest.mark.usefixtures("manner")
async def test_the_exit_code_arrives() -> None:
    async with asyncio.timeout(WAIT_S):
        assert await exit_of(child("raise SystemExit(7)")) == 7


@pytest.mark.usefixtures("manner")
async def test_the_signal_that_ended_it_arrives() -> None:
    process = child("import signal; signal.pause()")
    exited = exit_of(process)
    assert not exited.done()
    process.signal(signal.SIGKILL)
    async with asyncio.timeout(WAIT_S):
        assert await exited == -signal.SIGKILL


@pytest.mark.usefixtures("manner")
async def test_a_watch_whose_future_was_cancelled_does_no_harm() -> None:
    process = child("")
    abandoned, awaited = exit_of(process), exit_of(process)
    abandoned.cancel()
    async with asyncio.timeout(WAIT_S):
        assert await awaited == 0
