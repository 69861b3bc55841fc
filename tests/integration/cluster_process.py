"""A real `geminga standalone` as a process of a test: that of the plugin which users have too."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pytest_geminga.clusters import FREE_PORTS, STANDALONE, StandaloneProcess, StartFailed

__all__ = [
    "FREE_PORTS",
    "ROOT",
    "STANDALONE",
    "StandaloneProcess",
    "StartFailed",
    "is_running",
    "listening_addresses",
]

# Where modules of the tests are found.
ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    """Whether there is a process of that id that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def listening_addresses(pid: int) -> set[str]:
    """The addresses on which a process accepts connections, as the kernel's tables have them."""
    own: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # what it has closed meanwhile
            own.add(link.readlink().name)
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].partition(":")[0])
    return found
