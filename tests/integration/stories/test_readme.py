"""Proves that the README's examples do what they say, word for word but for the port."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.project_files import ROOT

README = ROOT / "README.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
USUAL_URL = "pulsar://127.0.0.1:6650"


EXAMPLES = PYTHON_BLOCK.findall(README.read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=["official", "ours"])
def test_the_readmes_example_runs_and_prints_what_it_sent(
    example: str, standalone: StandaloneProcess
) -> None:
    assert example.count(USUAL_URL) == 1
    code = example.replace(USUAL_URL, standalone.service_url)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    printed = [line for line in ended.stdout.splitlines() if line.startswith("hello ")]
    assert printed == [f"hello {number}" for number in range(10)]
