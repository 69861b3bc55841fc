"""Proves that the examples of consuming in the client's guide run, in order and word for word."""

from __future__ import annotations

import asyncio
import re
import textwrap
from typing import Any

from tests.integration.processes.cluster_process import StandaloneProcess
from tests.project_files import ROOT

import geminga

GUIDE = ROOT / "docs" / "client.md"
PYTHON_BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Those before it are of clusters with certificates and credentials (tests/compat).
BEGIN = "## Consuming"
WAIT_S = 120.0


async def test_the_examples_of_the_guide_run(standalone: StandaloneProcess) -> None:
    examples = PYTHON_BLOCK.findall(GUIDE.read_text().partition(BEGIN)[2])
    assert len(examples) > 5
    tour = textwrap.indent("\n".join(examples), "    ")
    names: dict[str, Any] = {"asyncio": asyncio, "geminga": geminga}
    exec(f"async def tour(client):\n{tour}", names)  # our own guide
    async with geminga.connect(standalone.service_url) as client, asyncio.timeout(WAIT_S):
        await names["tour"](client)
