"""Proves what each of several clusters is told, and how all are announced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from geminga_cli.commands.standalone import parse
from geminga_cli.supervisor.geo import Member, options_of, ready_line, record_of
from geminga_cli.supervisor.settings import ClusterSettings

ARGUMENTS = ["--geo", "east,west", "--brokers", "2", "--broker-port", "6700", "--web-port", "0"]
NO_PROCESS = cast("asyncio.subprocess.Process", None)
EAST = Member("east", NO_PROCESS, "pulsar://e:1", "http://e:2")
WEST = Member("west", NO_PROCESS, "pulsar://w:1", "http://w:2")


def told(index: int, directory: Path) -> ClusterSettings:
    settings, _ = parse([*ARGUMENTS, "--data-dir", str(directory)], ClusterSettings)
    assert isinstance(settings, ClusterSettings)
    options = options_of(settings, [*ARGUMENTS, "--data-dir", str(directory)], index)
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


def test_all_are_announced_in_one_line_and_found_by_their_records() -> None:
    line = "READY east pulsar://e:1 http://e:2 west pulsar://w:1 http://w:2"
    assert ready_line([EAST, WEST]) == line
    assert record_of(EAST) == {"serviceUrl": "http://e:2", "brokerServiceUrl": "pulsar://e:1"}
