"""``geminga zookeeper``: runs one ZooKeeper server, fetched first where it is missing."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.part import run_part_command
from geminga_cli.embedded_zookeeper.part import PART, ZooKeeperPartSettings


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    modules = ["geminga_cli.embedded_zookeeper.part"]
    return run_part_command(PART, ZooKeeperPartSettings, modules, arguments)
