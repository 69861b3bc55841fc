"""The official ``pulsar-admin``, out of a Pulsar distribution."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from tests.apache_java.marking import pulsar_home_or_skip

COMMAND_TIMEOUT_S = 120.0
HEAP = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class PulsarAdmin:
    """``pulsar-admin`` against one worker."""

    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        self._url = url
        self._program = pulsar_home_or_skip() / "bin" / "pulsar-admin"

    async def run(self, *words: str) -> tuple[int, str]:
        """The exit code and what it wrote. Words that name a file in ``directory`` mean that one:
        the program runs in a directory of its own."""
        files = {each.name for each in self.directory.iterdir()} | {"downloaded.py"}
        words = tuple(str(self.directory / each) if each in files else each for each in words)
        process = await asyncio.create_subprocess_exec(
            *(str(self._program), "--admin-url", self._url, *words),
            env=os.environ | {"PULSAR_MEM": HEAP, "PULSAR_LOG_DIR": str(self.directory)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                written, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode is not None
        return process.returncode, written.decode()

    async def does(self, line: str, *words: str) -> str:
        """What a command that succeeds wrote, without what Java's logger did."""
        code, written = await self.run(*line.split(), *words)
        assert code == 0, written
        lines = [each for each in written.splitlines() if not each.startswith(("SLF4J", "WARNING"))]
        return "\n".join(lines).strip()

    async def shows(self, line: str, *words: str) -> Any:
        """The JSON that it wrote."""
        return json.loads(await self.does(line, *words))

    async def refuses(self, line: str, *words: str) -> str:
        """What a command that fails wrote."""
        code, written = await self.run(*line.split(), *words)
        assert code != 0, written
        return written
