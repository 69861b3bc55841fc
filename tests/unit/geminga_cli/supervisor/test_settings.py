"""Proves what the settings of a standalone mean, and what its file may say to its parts."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.errors import TooFewBookies
from geminga_cli.supervisor.settings import (
    DECIDED,
    ClusterSettings,
    StandaloneSettings,
    parts_file,
    with_bookies_of_data,
)
from geminga_functions.config import FunctionsWorkerConfig
from geminga_proxy.config import ProxyConfig
from geminga_server.config import settings_of
from geminga_server.errors import ConfigError

SETTINGS = StandaloneSettings(num_bookies=1)


@pytest.mark.parametrize(
    ("stored", "wanted", "started"), [(0, 0, 1), (0, 3, 3), (1, 3, 3), (3, 0, 3), (3, 3, 3)]
)
def test_there_are_as_many_bookies_as_asked_for_or_else_as_the_data_is_on(
    tmp_path: Path, stored: int, wanted: int, started: int
) -> None:
    for name in ("bookie", "bookie-2", "bookie-3")[:stored]:
        (tmp_path / name).mkdir()
    settings = StandaloneSettings(data_directory=tmp_path, num_bookies=wanted)
    assert len(with_bookies_of_data(settings).bookies) == started


def test_fewer_bookies_than_the_data_is_on_are_refused(tmp_path: Path) -> None:
    for name in ("bookie", "bookie-2"):
        (tmp_path / name).mkdir()
    with pytest.raises(TooFewBookies, match=r"on 2 bookies.*--num-bookies 2"):
        with_bookies_of_data(StandaloneSettings(data_directory=tmp_path, num_bookies=1))


def test_a_brokers_id_is_what_clients_are_told_and_the_web_port() -> None:
    assert replace(SETTINGS, bind_address="0.0.0.0").broker_id(8080) == "127.0.0.1:8080"
    assert replace(SETTINGS, advertised_address="h").broker_id(1) == "h:1"


def test_bookies_that_find_no_port_are_refused() -> None:
    settings = replace(SETTINGS, bookie_port=65534, num_bookies=3)
    with pytest.raises(ConfigError, match=r"no ports for 3 parts.*choose 65533 or less"):
        settings.wanted_ports()


def test_the_port_of_a_zookeeper_that_is_not_ours_counts_for_nothing() -> None:
    assert "--zookeeper-port" in SETTINGS.wanted_ports()
    assert "--zookeeper-port" not in replace(SETTINGS, zookeeper="zk:2181").wanted_ports()


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "geminga.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[brokr]\na = 1\n", r"\[brokr\] is no section for a standalone; \[broker\]\?"),
        ("[autorecovery]\na = 1\n", "there are standalone, zookeeper, bookie, broker, proxy"),
        ("[broker]\nweb_port = 1\n", r"\[broker\] web_port: .* give web_port below \[standalone"),
        ("[bookie]\nport = 1\n", r"\[bookie\] port: .* give bookie_port below"),
        ("[zookeeper]\nsync = false\n", r"\[zookeeper\] sync: .* give sync below"),
        ("[broker]\ncluster = 'c'\n", r"\[broker\] cluster: .* give cluster below"),
        ("[broker]\ninitialize = true\n", r"\[broker\] initialize: .* leave it out"),
    ],
)
def test_what_a_file_cannot_say_is_named_with_its_section(
    tmp_path: Path, text: str, refusal: str
) -> None:
    with pytest.raises(ConfigError, match=refusal) as refused:
        parts_file(written(tmp_path, text))
    assert "geminga.toml" in str(refused.value)


def test_what_is_decided_are_settings_and_by_settings() -> None:
    classes = {
        "zookeeper": ZooKeeperPartSettings,
        "bookie": BookieConfig,
        "broker": BrokerConfig,
        "proxy": ProxyConfig,
        "functions-worker": FunctionsWorkerConfig,
    }
    own = {each.name for each in fields(ClusterSettings)}
    for part, decided in DECIDED.items():
        assert decided.keys() <= settings_of(classes[part]).keys()
        assert set(decided.values()) <= own | {""}


def test_all_of_zookeeper_but_its_heap_is_decided() -> None:
    names = {each.name for each in fields(ZooKeeperPartSettings)}
    assert names - DECIDED["zookeeper"].keys() == {"heap_max_mib"}
