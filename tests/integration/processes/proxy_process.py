"""A real `geminga proxy` as a process, on free ports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes.part_process import command
from tests.integration.waiting import eventually

END_S = 20.0


@dataclass(frozen=True)
class ProxyProcess:
    """A proxy that serves, and its addresses."""

    process: subprocess.Popen[bytes]
    service_url: str
    web_url: str
    log: Path
    # Only if it has a certificate.
    service_url_tls: str = ""
    web_url_tls: str = ""

    @property
    def metrics_url(self) -> str:
        """The URL of its metrics."""
        return f"{self.web_url}/metrics/"


@contextmanager
def proxy_of(log: Path, *options: str) -> Generator[ProxyProcess]:
    """A proxy with these options, which logs to ``log``; it is stopped in order at the end if it
    still runs."""
    words = command("proxy", "--port", "0", "--web-port", "0", "--json-logs", *options)
    with log.open("wb") as stream, subprocess.Popen(words, stderr=stream) as process:
        try:
            (serves,) = eventually(lambda: serving(log), lambda found: len(found) == 1)
            tls = serves.get("pulsar_tls", ""), serves.get("web_tls", "")
            yield ProxyProcess(process, serves["pulsar"], serves["web"], log, *tls)
        finally:
            process.terminate()
            process.wait(END_S)


def serving(log: Path) -> list[dict[str, str]]:
    """The addresses that its log shows once it serves."""
    lines = [line for line in log.read_text().splitlines() if line.endswith("}")]
    return [event for event in map(json.loads, lines) if event["event"] == "proxy serves"]
