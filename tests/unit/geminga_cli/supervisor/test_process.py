"""Proves that a child is its own group, dies with its parent, and keeps what it inherits."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from geminga_cli.supervisor import process
from geminga_cli.supervisor.process import Command, Process, exit_words, shorten_log

WAIT_S = 60


def python(code: str, log_file: Path | None = None) -> Command:
    return Command([sys.executable, "-c", code], os.environ, log_file)


def end_of(child: Process) -> int:
    """Wait for the child as the supervisor does: its descriptor becomes readable."""
    descriptor = os.pidfd_open(child.pid)
    try:
        assert select.select([descriptor], [], [], WAIT_S)[0]
    finally:
        os.close(descriptor)
    returncode = child.poll()
    assert returncode is not None
    return returncode


def test_a_child_runs_and_ends_with_its_exit_code() -> None:
    assert end_of(Process(python("raise SystemExit(7)"))) == 7


def test_a_child_is_the_leader_of_its_own_process_group() -> None:
    child = Process(python("import sys; sys.stdin.read(); import signal; signal.pause()"))
    assert os.getpgid(child.pid) == child.pid
    assert child.poll() is None
    child.signal(signal.SIGKILL)
    assert end_of(child) == -signal.SIGKILL
    child.signal(signal.SIGKILL)  # nothing happens


def test_a_child_keeps_the_descriptors_it_inherits_and_no_others() -> None:
    reader, writer = os.pipe()
    other = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(other, True)  # noqa: FBT003 - os' signature
    code = f"""
import os
os.write({writer}, b"kept")
try:
    os.fstat({other})
except OSError:
    raise SystemExit(3)
"""
    child = Process(python(code), inherited=[writer])
    assert os.read(reader, 10) == b"kept"
    assert end_of(child) == 3
    for descriptor in (reader, writer, other):
        os.close(descriptor)


def test_a_childs_output_goes_to_its_log_file(tmp_path: Path) -> None:
    log_file = tmp_path / "part.log"
    log_file.write_text("before\n")
    child = Process(python("import sys; print('out'); print('err', file=sys.stderr)", log_file))
    end_of(child)
    assert sorted(log_file.read_text().split()) == ["before", "err", "out"]


def test_a_long_log_file_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_FILE_BYTES_MAX", 5)
    log_file = tmp_path / "part.log"
    log_file.write_text("long enough")
    end_of(Process(python("print('new')", log_file)))
    assert log_file.read_text() == "new\n"
    assert (tmp_path / "part.log.old").read_text() == "long enough"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children")
def test_a_long_log_is_put_aside_while_its_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_FILE_BYTES_MAX", 5)
    log = tmp_path / "p.log"
    assert not shorten_log(log)
    with log.open("ab") as stream:
        stream.write(b"long line\n")
        stream.flush()
        assert shorten_log(log)
        assert not shorten_log(log)
        stream.write(b"next\n")
    assert log.read_bytes() == b"next\n"
    assert (tmp_path / "p.log.old").read_bytes() == b"long line\n"


def test_a_child_dies_when_its_parent_is_killed() -> None:
    code = f"""
import os, sys, signal
sys.path[:] = {sys.path!r}
from geminga_cli.supervisor.process import Command, Process
child = Process(Command([sys.executable, "-c", "import signal; signal.pause()"], os.environ))
print(child.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    assert select.select([grandchild], [], [], WAIT_S)[0]
    os.close(grandchild)


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "exit code 0"),
        (78, "exit code 78"),
        (-9, "killed by SIGKILL"),
        (-99, "killed by signal 99"),
    ],
)
def test_how_a_process_ended_is_told_in_words(returncode: int, words: str) -> None:
    assert exit_words(returncode) == words
