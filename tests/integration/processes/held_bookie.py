"""``geminga bookie`` whose syncs a test can hold up.

``python -m tests.integration.processes.held_bookie`` takes the options of ``geminga bookie``. While
the file exists that the environment variable ``HOLD_VARIABLE`` names, no file is synced; each sync
that waits has written a line into the file beside it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from unittest.mock import patch

from geminga_cli.commands.parts import bookie

HOLD_VARIABLE = "GEMINGA_TEST_HOLD"
POLL_S = 0.005
_fdatasync = os.fdatasync


def waiting_path(hold: Path) -> Path:
    """The file to which each sync that waits adds a line."""
    return hold.with_suffix(".waiting")


def held_fdatasync(descriptor: int) -> None:
    """Sync as ``os.fdatasync`` does, once the test allows it; waits in the thread that syncs."""
    hold = Path(os.environ[HOLD_VARIABLE])
    if hold.exists():
        with waiting_path(hold).open("a") as waiting:
            waiting.write("a sync\n")
        while hold.exists():
            time.sleep(POLL_S)
    _fdatasync(descriptor)


def main() -> int:
    """Run the bookie unchanged but for its syncs."""
    with patch("geminga_runtime.file_disk.os.fdatasync", held_fdatasync):
        return bookie.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
