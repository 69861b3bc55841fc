"""``magnetar standalone`` whose bookies are on disks that power cuts harm.

``python -m tests.torture.fragile_standalone``, with the options of the original. ZooKeeper is on
real files, which are never harmed: what it syncs is upstream's business.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from magnetar_cli.commands import standalone
from magnetar_cli.supervisor.parts import PythonPart
from magnetar_cli.supervisor.standalone import BOOKIE


class FragilePart(PythonPart):
    """A part whose process, if it is a bookie, is another one."""

    def words(self) -> list[str]:
        """The command line."""
        words = super().words()
        if self.command != BOOKIE:
            return words
        options = words[words.index(BOOKIE) + 1 :]
        return [sys.executable, "-m", "tests.torture.fragile_bookie", *options]


def main() -> int:
    """Run the standalone as it is, its bookies aside."""
    with patch("magnetar_cli.supervisor.standalone.PythonPart", FragilePart):
        return standalone.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
