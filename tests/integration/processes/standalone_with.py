"""``geminga standalone`` with another kind of bookies, which a module of a test runs.

``python -m tests.integration.processes.standalone_with MODULE`` takes the options of ``geminga
standalone``. Each bookie is ``python -m MODULE`` with a bookie's options.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from geminga_cli.commands import standalone
from geminga_cli.supervisor.parts import PythonPart
from geminga_cli.supervisor.settings import BOOKIE


class OtherPart(PythonPart):
    """A part of the supervisor's; if it is a bookie, its process runs ``module``."""

    module = ""

    def words(self) -> list[str]:
        """The command line."""
        words = super().words()
        if self.command != BOOKIE:
            return words
        options = words[words.index(BOOKIE) + 1 :]
        return [sys.executable, "-m", self.module, *options]


def main() -> int:
    """Run the standalone unchanged but for its bookies."""
    _, OtherPart.module, *options = sys.argv
    with patch("geminga_cli.supervisor.plan.PythonPart", OtherPart):
        return standalone.main(options)


if __name__ == "__main__":
    sys.exit(main())
