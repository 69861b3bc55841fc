"""``python -m geminga_proxy``: a proxy with its settings from the environment alone."""

from __future__ import annotations

import sys

from geminga_proxy.part import main

if __name__ == "__main__":
    sys.exit(main(None, {}))
