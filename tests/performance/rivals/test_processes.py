"""CPU and memory of a process tree are those of all its processes, and of nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator

import pytest
from tests.performance.rivals.processes import ProcessTree, machine_busy_s

# A parent that rests and a child that burns 0.3 s of CPU, then both say so and wait.
CHILD = (
    "import time\nwhile time.process_time() < 0.3: pass\nprint('burnt', flush=True)\n"
    "ballast = bytearray(64 << 20)\nballast[::4096] = b'x' * len(ballast[::4096])\n"
    "print('filled', flush=True)\ninput()"
)
PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])"


@pytest.fixture
def family() -> Generator[subprocess.Popen[str]]:
    """A parent with a busy child; both end with their standard input."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        yield parent
        assert parent.stdin is not None
        parent.stdin.close()


def said(process: subprocess.Popen[str]) -> str:
    """The next line it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_cpu_of_a_child_counts_and_ours_does_not(family: subprocess.Popen[str]) -> None:
    tree = ProcessTree(family.pid)
    assert said(family) == "burnt"
    burnt_s = tree.cpu_s()
    assert 0.3 <= burnt_s < 1.0
    assert said(family) == "filled"
    before_s = tree.cpu_s()
    own_s = time.process_time()
    while time.process_time() - own_s < 0.2:
        pass
    assert tree.cpu_s() - before_s < 0.02


def test_the_memory_of_a_child_counts(family: subprocess.Popen[str]) -> None:
    assert said(family) == "burnt"
    assert said(family) == "filled"
    assert ProcessTree(family.pid).pss_mb() > 64


def test_an_ended_process_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert ProcessTree(process.pid).cpu_s() == 0
    assert ProcessTree(process.pid).pss_mb() == 0


def test_the_machine_is_busy_while_we_are() -> None:
    before_s, own_s = machine_busy_s(), time.process_time()
    while time.process_time() - own_s < 0.2:
        pass
    assert machine_busy_s() - before_s > 0.1
