"""Proves what the settings of a ZooKeeper process mean to its server."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError


def test_by_default_it_is_a_synced_server_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = ZooKeeperPartSettings().server()
    assert server.address == "127.0.0.1:2181"
    assert server.data_directory == tmp_path / "data" / "zookeeper"
    assert server.is_synced


def test_variables_and_options_arrive() -> None:
    settings = load_config(
        ZooKeeperPartSettings,
        "zookeeper",
        environment={"GEMINGA_ZOOKEEPER_BIND_ADDRESS": "0.0.0.0"},
        flags={"port": 9, "sync": False, "heap_max_mib": 64, "data_directory": Path("/d")},
    )
    server = settings.server()
    assert (server.host, server.port, server.heap_max_mib) == ("0.0.0.0", 9, 64)
    assert server.address == "127.0.0.1:9"
    assert server.log_file == Path("/d/zookeeper.log")
    assert not server.is_synced


def test_a_port_must_be_given_as_clients_have_to_know_it() -> None:
    with pytest.raises(ConfigError):
        load_config(ZooKeeperPartSettings, "zookeeper", environment={}, flags={"port": 0})
