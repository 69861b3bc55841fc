"""Proves what each of several clusters is told, and how all are announced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from geminga_cli.commands.parts.part_command import make_parser
from geminga_cli.commands.parts.zookeeper import PAGES
from geminga_cli.commands.standalone import parse
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.supervisor.geo import Member, options_of, ready_line, record_of, store_options
from geminga_cli.supervisor.settings import ClusterSettings
from geminga_server.config.loading import load_config

ARGUMENTS = ["--geo", "east,west", "--brokers", "2", "--broker-port", "6700", "--web-port", "0"]
NO_PROCESS = cast("asyncio.subprocess.Process", None)
EAST = Member("east", NO_PROCESS, "pulsar://e:1", "http://e:2")
WEST = Member("west", NO_PROCESS, "pulsar://w:1", "http://w:2")


def told(index: int, directory: Path, *more: str) -> ClusterSettings:
    arguments = [*ARGUMENTS, "--data-dir", str(directory), *more]
    settings, _ = parse(arguments, ClusterSettings)
    assert isinstance(settings, ClusterSettings)
    options = options_of(settings, arguments, index)
    own, _ = parse(options, ClusterSettings)
    assert isinstance(own, ClusterSettings)
    return own


def test_each_cluster_has_a_name_a_folder_and_ports_of_its_own(tmp_path: Path) -> None:
    east, west = told(0, tmp_path), told(1, tmp_path)
    assert (east.cluster, west.cluster) == ("east", "west")
    assert (east.data_directory, west.data_directory) == (tmp_path / "east", tmp_path / "west")
    assert (east.broker_port, west.broker_port) == (6700, 6800)
    assert (east.web_port, west.web_port) == (0, 0)
    assert (east.zookeeper_port, west.zookeeper_port) == (2181, 2281)


def test_a_cluster_begins_no_others_and_ends_with_the_one_that_began_it(tmp_path: Path) -> None:
    west = told(1, tmp_path)
    assert (west.geo, west.stop_with_input, west.num_brokers) == ((), True, 2)


def test_a_cluster_that_shares_its_configuration_starts_no_store_for_it(tmp_path: Path) -> None:
    west = told(1, tmp_path, "--shared-configuration", "--configuration-store", "127.0.0.1:7")
    assert (west.shared_configuration, west.configuration_store) == (False, "127.0.0.1:7")


def test_the_store_of_all_keeps_what_it_has_as_safely_as_they_do(tmp_path: Path) -> None:
    for words, is_synced in (((), True), (("--no-sync",), False)):
        arguments = [*ARGUMENTS, "--data-dir", str(tmp_path), *words]
        settings, _ = parse(arguments, ClusterSettings)
        assert isinstance(settings, ClusterSettings)
        parser = make_parser("zookeeper", ZooKeeperPartSettings, PAGES)
        flags = vars(parser.parse_args(store_options(settings, 7)))
        del flags["config"]
        store = load_config(ZooKeeperPartSettings, "zookeeper", environment={}, flags=flags)
        assert store.data_directory == tmp_path / "configuration-store"
        assert (store.port, store.sync, store.stop_with_input) == (7, is_synced, True)


def test_all_are_announced_in_one_line_and_found_by_their_records() -> None:
    line = "READY east pulsar://e:1 http://e:2 west pulsar://w:1 http://w:2"
    assert ready_line([EAST, WEST]) == line
    assert record_of(EAST) == {"serviceUrl": "http://e:2", "brokerServiceUrl": "pulsar://e:1"}
