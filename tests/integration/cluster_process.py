"""A real `geminga standalone` as a process of a test: that of the plugin which users have too."""

from __future__ import annotations

from pathlib import Path

from pytest_geminga.clusters import FREE_PORTS, STANDALONE, StandaloneProcess, StartFailed

__all__ = ["FREE_PORTS", "ROOT", "STANDALONE", "StandaloneProcess", "StartFailed", "is_running"]

# Where modules of the tests are found.
ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    """Whether there is a process of that id that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
