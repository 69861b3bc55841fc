"""The embedded ZooKeeper for a caller that wants to start it now: at hand, or fetched first."""

from __future__ import annotations

import os
import subprocess
import sys

from geminga_cli.embedded_zookeeper.installation import Installation, find_installation
from geminga_cli.errors import SetupFailed


def provide_zookeeper() -> Installation:
    """Return an installation that can be started; where something is missing, set it up first.

    ``geminga setup`` does that in another process: what it imports must not stay in the memory of
    the supervisor. Raises ``JavaMissing``, ``SetupFailed``.
    """
    installation = find_installation(os.environ)
    # The exit code does not matter: what counts is what is there afterwards. ``find_installation``
    # names paths, and its properties look at the disk whenever they are asked.
    if not installation.is_quick:
        subprocess.run(
            [sys.executable, "-m", "geminga_cli", "setup"],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,  # ours is read by programs that wait for READY
            check=False,
        )
        # Without the class-data archive it starts more slowly, which is no reason to fail.
        if not installation.is_usable:
            raise SetupFailed(
                "there is no ZooKeeper to start (the reason is above): run `geminga setup` where "
                "there is a package index, or give your own with --zookeeper HOST:PORT"
            )
    return installation
