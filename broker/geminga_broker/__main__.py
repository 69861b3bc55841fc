"""``python -m geminga_broker``: a broker with the settings of the environment alone."""

from __future__ import annotations

import sys

from geminga_broker.part import main

if __name__ == "__main__":
    sys.exit(main(None, {}))
