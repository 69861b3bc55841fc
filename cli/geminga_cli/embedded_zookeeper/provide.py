"""The embedded ZooKeeper for somebody who wants to start it now: at hand, or fetched first."""

from __future__ import annotations

import os
import subprocess
import sys

from geminga_cli.embedded_zookeeper.installation import Installation, find_installation
from geminga_cli.errors import SetupFailed


def provide_zookeeper() -> Installation:
    """What ``geminga setup`` brings, after that command was run where something was missing.

    Fetching is another process's work: what it imports must not stay in the supervisor's memory.
    Raises ``JavaMissing``, ``SetupFailed``.
    """
    installation = find_installation(os.environ)
    if not installation.is_quick:
        subprocess.run(
            [sys.executable, "-m", "geminga_cli", "setup"],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
        )
        if not installation.is_usable:
            raise SetupFailed(
                "there is no ZooKeeper to start (the reason is above): run `geminga setup` where "
                "there is a package index, or give your own with --zookeeper HOST:PORT"
            )
    return installation
