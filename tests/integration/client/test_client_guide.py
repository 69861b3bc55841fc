"""Proves that every example of the client's guide runs, word for word but for the port."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.project_files import ROOT

GUIDE = ROOT / "docs" / "client.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = PYTHON_BLOCK.findall(GUIDE.read_text())
USUAL_URL = "pulsar://127.0.0.1:6650"
# What an example prints begins so.
PRINTED = {
    "one coffee": "stored as ",
    "sensor-": "10000 messages",
    "two teas": "stored: ",
    "copier": "",
    "by_size": "0 partitions: ",
    "typed-orders": "coffee",
    "plain-orders": "received: a water",
    "sales": "last sale: tea 2.5",
}


@pytest.mark.parametrize("word", PRINTED)
def test_an_example_runs(standalone: StandaloneProcess, word: str) -> None:
    (example,) = [each for each in EXAMPLES if word in each]
    assert example.count(USUAL_URL) == 1
    code = example.replace(USUAL_URL, standalone.service_url)
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith(PRINTED[word]), ended.stdout


def test_no_example_is_left_out() -> None:
    assert len(EXAMPLES) == len(PRINTED)
