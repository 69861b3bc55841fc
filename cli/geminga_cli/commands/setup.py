"""``geminga setup``: fetches what the embedded ZooKeeper needs. `make setup` calls it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Fetch what is missing; prints nothing where nothing was. Returns 0."""
    parser = argparse.ArgumentParser(
        prog="geminga setup",
        description="Fetch what the embedded ZooKeeper needs into the user's cache (XDG_CACHE_HOME "
        "or ~/.cache). The first time this downloads 456 MB, and needs 1.5 GB of disk for a "
        "while; 25 MB are kept. Later there is nothing to do.",
    )
    parser.add_argument(
        "--check", action="store_true", help="read every file, replace damaged ones"
    )
    options = parser.parse_args(arguments)

    from geminga_cli.embedded_zookeeper.setup import set_up  # noqa: PLC0415 - not for --help

    set_up(os.environ, say, is_checked=options.check)
    return 0


def say(words: str) -> None:
    """Print what the user is waiting for, on standard error."""
    print(f"geminga: {words}", file=sys.stderr, flush=True)
