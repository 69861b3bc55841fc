"""``geminga zookeeper``: runs one ZooKeeper server, fetched first where it is missing."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_cli.commands.part import make_parser, settings_of
from geminga_cli.embedded_zookeeper.part import PART, ZooKeeperPartSettings, run_zookeeper
from geminga_cli.embedded_zookeeper.provide import provide_zookeeper


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    parser = make_parser(PART, list(settings_of(ZooKeeperPartSettings)))
    options = vars(parser.parse_args(arguments))
    return run_zookeeper(options.pop("config"), options, provide_zookeeper())
