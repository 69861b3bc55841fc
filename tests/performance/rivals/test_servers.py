"""What a standalone costs is what it would cost with each bookie on a machine of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.performance.rivals.processes import process_cpu_s
from tests.performance.rivals.program import running
from tests.performance.rivals.servers import Server

# Burns CPU, says so and waits.
BUSY = "import time\nwhile time.process_time() < 0.2: pass\nprint('burnt', flush=True)\ninput()"


PAGE = b"""# TYPE read_bytes_total counter
read_bytes_total{cluster="a"} 5
read_bytes_total{cluster="b"} 1.5e3
read_bytes_total_of_others 7
without_labels 2
"""


def answer_page(*_: object) -> tuple[int, bytes]:
    return 200, PAGE


def test_a_metric_is_the_sum_of_its_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Server, "web", answer_page)
    with running(["true"], tmp_path, {}) as program:
        server = Server("", "", program, lambda: ())
        assert server.metric("read_bytes_total") == 1505
        assert server.metric("without_labels") == 2
        assert server.metric("read") is None


@pytest.mark.parametrize("bookies", [0, 1, 2])
def test_of_several_bookies_one_counts(tmp_path: Path, bookies: int) -> None:
    children = (
        "import subprocess, sys\n"
        f"started = [subprocess.Popen([sys.executable, '-c', {BUSY!r}], stdin=subprocess.PIPE,"
        " stdout=subprocess.PIPE) for _ in range(2)]\n"
        "for each in started: each.stdout.readline()\n"
        "print('ready', flush=True)\nstarted[0].wait()"
    )
    with running([sys.executable, "-c", children], tmp_path, {}) as program:
        program.wait_until(lambda: b"ready" in program.output.read_bytes())
        pids: Sequence[int] = program.processes.pids()[1 : 1 + bookies]
        server = Server("", "", program, lambda: pids)
        others_s = sum(map(process_cpu_s, pids)) * (1 - 1 / max(1, bookies))
        assert server.cpu_s() == pytest.approx(server.all_cpu_s() - others_s, abs=0.05)
        assert server.all_cpu_s() - server.cpu_s() >= (0.15 if bookies == 2 else -0.001)
        program.kill()
