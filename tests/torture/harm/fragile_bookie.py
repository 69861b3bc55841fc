"""``geminga bookie`` on a disk that power cuts harm.

``python -m tests.torture.harm.fragile_bookie``, with the options of the original.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from tests.torture.harm.fragile_disk import FragileDisk
from tests.torture.harm.fragile_index import FragileStore

from geminga_cli.commands.parts import bookie


def main() -> int:
    """Run the bookie as it is, its files aside: each stands in one place of the original."""
    with (
        patch("geminga_bookie.part.FileDisk", FragileDisk),
        patch("geminga_bookie.index.rocks_store.RocksStore", FragileStore),
    ):
        return bookie.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
