"""``python -m geminga_functions``: a functions worker with its settings in the environment."""

from __future__ import annotations

import sys

from geminga_functions.part import main

if __name__ == "__main__":
    sys.exit(main(None, {}))
