"""Proves that two processes never work on the same data, and that unusable directories are said."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from geminga_runtime.clock import SystemClock
from geminga_server import directories
from geminga_server.directories import DirectoryLock
from geminga_server.errors import DirectoryInUse, DirectoryUnusable
from geminga_simulation.event_loop.clock import SimulatedClock

CLOCK = SystemClock()


def test_the_directory_is_made_and_the_owner_written_down(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path / "a" / "b", CLOCK)
    assert (tmp_path / "a" / "b" / "lock").read_text() == f"{os.getpid()}\n"
    held.close()


def test_a_second_lock_is_refused_and_told_whose_the_first_is(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path, CLOCK)
    owner = os.getppid()  # as if it were held there: one process may not wait for itself
    (tmp_path / "lock").write_text(f"{owner}\n")
    with pytest.raises(DirectoryInUse, match=f"in use by process {owner}") as refused:
        DirectoryLock(tmp_path, CLOCK)
    assert (refused.value.path, refused.value.pid) == (tmp_path, owner)
    held.close()


def test_a_lock_let_go_of_can_be_taken_again(tmp_path: Path) -> None:
    DirectoryLock(tmp_path, CLOCK).close()
    DirectoryLock(tmp_path, CLOCK).close()


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
    held = DirectoryLock(tmp_path, CLOCK)
    child = hold_in_child(held.descriptor)
    held.close()
    forget_owner(tmp_path)
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        DirectoryLock(tmp_path, SimulatedClock(step_s=1.0))
    child.communicate(timeout=60)
    DirectoryLock(tmp_path, CLOCK).close()


def test_a_newcomer_waits_for_the_children_of_a_dead_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = DirectoryLock(tmp_path, CLOCK)
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

    monkeypatch.setattr(directories, "_is_alive", end_child_when_looked_at(directories._is_alive))
    DirectoryLock(tmp_path, CLOCK).close()
    assert looked_at


def test_a_lock_file_with_rubbish_in_it_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff\xffnonsense")
    DirectoryLock(tmp_path, CLOCK).close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_an_owner_of_our_own_id_is_one_of_another_container(tmp_path: Path) -> None:
    """Ids of processes mean nothing across containers that share a volume."""
    held = DirectoryLock(tmp_path, CLOCK)
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        DirectoryLock(tmp_path, SimulatedClock(step_s=1.0))
    held.close()


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_a_path_that_is_no_directory_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryUnusable, match=r"cannot be used: .*/file is no directory"):
        DirectoryLock(tmp_path / name, CLOCK)


def test_a_directory_that_this_user_may_not_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may_not(_path: Path, _mode: int) -> bool:
        return False

    monkeypatch.setattr(os, "access", may_not)  # root may always
    with pytest.raises(DirectoryUnusable, match=f"this user may not write to {tmp_path}"):
        DirectoryLock(tmp_path / "data", CLOCK)


def test_a_read_only_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    def statvfs(_path: Path) -> ReadOnly:
        return ReadOnly()

    monkeypatch.setattr(os, "statvfs", statvfs)
    with pytest.raises(DirectoryUnusable, match=f"file system of {tmp_path} is read-only"):
        DirectoryLock(tmp_path / "data", CLOCK)


@pytest.mark.parametrize("call", ["mkdir", "flock", "pwrite"])
def test_what_only_shows_when_it_is_tried_is_a_reason_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A file system that knows no locks, a full disk, directories such as /proc."""

    def refuse(*_what: object, **_how: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    owner = {"mkdir": Path, "flock": fcntl, "pwrite": os}[call]
    monkeypatch.setattr(owner, call, refuse)
    with pytest.raises(DirectoryUnusable, match="cannot be used: Operation not supported"):
        DirectoryLock(tmp_path / "data", CLOCK)
