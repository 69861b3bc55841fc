"""Proves that the end of a child is noticed, with the kernel's help and without it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from magnetar_cli.supervisor.process import Command, Process
from magnetar_cli.supervisor.watch import exit_of

WAIT_S = 10


def child(code: str) -> Process:
    return Process(Command([sys.executable, "-c", code], os.environ))


@pytest.fixture(params=["told by the kernel", "looked for"])
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "looked for":
        monkeypatch.delattr(os, "pidfd_open")
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
async def test_a_watcher_that_nobody_waits_for_any_more_does_no_harm() -> None:
    process = child("")
    abandoned, awaited = exit_of(process), exit_of(process)
    abandoned.cancel()
    async with asyncio.timeout(WAIT_S):
        assert await awaited == 0
