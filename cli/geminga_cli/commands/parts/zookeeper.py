"""``geminga zookeeper``: runs one ZooKeeper server, which is fetched first where it is missing."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.parts.part_command import run_part_command
from geminga_cli.commands.parts.settings_help import HelpPages
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings

PAGES = HelpPages(
    "Run one server of Apache ZooKeeper, which is fetched first where it is missing. The server "
    "stands alone: it is no member of an ensemble.",
    first=("data_directory", "bind_address", "port", "metrics_port", "sync", "log_level"),
)


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    modules = ["geminga_cli.embedded_zookeeper.part"]
    return run_part_command("zookeeper", ZooKeeperPartSettings, modules, arguments, PAGES)
