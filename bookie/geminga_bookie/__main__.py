"""``python -m geminga_bookie``: a bookie with its settings from the environment alone."""

from __future__ import annotations

import sys

from geminga_bookie.part import main

if __name__ == "__main__":
    sys.exit(main(None, {}))
