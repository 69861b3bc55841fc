"""Proves that two supervisors never work on the same data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from geminga_cli.errors import DataDirectoryInUse
from geminga_cli.supervisor import lock
from geminga_cli.supervisor.lock import DataDirectoryLock
from geminga_runtime.clock import SystemClock

CLOCK = SystemClock()


class JumpingClock:
    """A clock that is a second later every time somebody looks."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 1.0
        return self._now_s

    def wall_ms(self) -> int:
        return 0


def test_the_directory_is_made_and_the_owner_written_down(tmp_path: Path) -> None:
    held = DataDirectoryLock(tmp_path / "a" / "b", CLOCK)
    assert (tmp_path / "a" / "b" / "lock").read_text() == f"{os.getpid()}\n"
    held.close()


def test_a_second_lock_is_refused_and_told_whose_the_first_is(tmp_path: Path) -> None:
    held = DataDirectoryLock(tmp_path, CLOCK)
    with pytest.raises(DataDirectoryInUse, match=f"in use by process {os.getpid()}") as refused:
        DataDirectoryLock(tmp_path, CLOCK)
    assert (refused.value.directory, refused.value.pid) == (tmp_path, os.getpid())
    held.close()


def test_a_lock_let_go_of_can_be_taken_again(tmp_path: Path) -> None:
    DataDirectoryLock(tmp_path, CLOCK).close()
    DataDirectoryLock(tmp_path, CLOCK).close()


def hold_in_child(descriptor: int) -> subprocess.Popen[bytes]:
    """A process that only holds the descriptor, until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=(descriptor,),
    )


def forget_owner(directory: Path) -> None:
    """Name a process as owner that is certainly dead."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (directory / "lock").write_text(f"{dead.pid}\n")


def test_a_child_keeps_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    held = DataDirectoryLock(tmp_path, CLOCK)
    child = hold_in_child(held.descriptor)
    held.close()
    forget_owner(tmp_path)
    with pytest.raises(DataDirectoryInUse, match="in use by another process"):
        DataDirectoryLock(tmp_path, JumpingClock())
    child.communicate(timeout=60)
    DataDirectoryLock(tmp_path, CLOCK).close()


def test_a_newcomer_waits_for_the_children_of_a_dead_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = DataDirectoryLock(tmp_path, CLOCK)
    child = hold_in_child(held.descriptor)
    held.close()
    forget_owner(tmp_path)
    looked_at: list[int] = []

    def end_child_when_looked_at(is_alive: Callable[[int], bool]) -> Callable[[int], bool]:
        def look(pid: int) -> bool:
            if not looked_at:
                child.communicate(timeout=60)
            looked_at.append(pid)
            return is_alive(pid)

        return look

    monkeypatch.setattr(lock, "_is_alive", end_child_when_looked_at(lock._is_alive))
    DataDirectoryLock(tmp_path, CLOCK).close()
    assert looked_at


def test_a_lock_file_with_rubbish_in_it_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff\xffnonsense")
    DataDirectoryLock(tmp_path, CLOCK).close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
