"""Proves the words of `geminga cluster`, and what it shows of the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminga_cli.commands import standalone
from geminga_cli.commands.cluster import PAGES, main, show_parts
from geminga_cli.errors import NoSupervisor
from geminga_cli.supervisor.process import log_tail
from geminga_cli.supervisor.settings import ClusterSettings
from geminga_server.errors import ConfigError


def parsed(*words: str) -> ClusterSettings:
    settings, _ = standalone.parse(words, ClusterSettings, PAGES)
    assert isinstance(settings, ClusterSettings)
    return settings


def test_a_cluster_has_three_brokers_behind_a_proxy_unless_it_is_told_otherwise() -> None:
    settings = parsed()
    assert settings.brokers == ("broker", "broker-2", "broker-3")
    assert settings.proxies == ("proxy",)
    told = parsed("--brokers", "2", "--bookies", "5", "--proxies", "0", "--data-dir", "/d")
    assert (told.brokers, told.proxies, told.num_bookies) == (("broker", "broker-2"), (), 5)
    assert told.data_directory == Path("/d")


def test_its_settings_have_a_section_and_variables_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "geminga.toml"
    file.write_text("[cluster]\nnum_brokers = 4\nnum_proxies = 2\n[proxy]\nkeepalive_s = 9.0\n")
    monkeypatch.setenv("GEMINGA_CLUSTER_NUM_PROXIES", "3")
    settings = parsed("--config", str(file))
    assert (settings.num_brokers, settings.num_proxies) == (4, 3)
    file.write_text("[standalone]\nbroker_port = 1\n")
    with pytest.raises(ConfigError, match=r"\[standalone\] is no section for a cluster"):
        parsed("--config", str(file))


@pytest.mark.parametrize("words", ["", "dance", "kill", "add", "status broker", "kill b --keep"])
def test_wrong_words_are_refused_with_the_usage(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "usage: geminga cluster" in capsys.readouterr().err


@pytest.mark.real_loop
def test_without_a_cluster_the_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSupervisor, match=str(tmp_path)):
        main(["status", "--data-dir", str(tmp_path)])


def test_each_part_is_a_line() -> None:
    addresses = {"pulsar": "pulsar://h:1", "web": "http://h:2"}
    parts: list[dict[str, Any]] = [
        {"part": "broker", "state": "ready", "pid": 7, "restarts": 12, "addresses": addresses},
        {"part": "broker-2", "state": "down", "pid": None, "restarts": 0, "addresses": {}},
    ]
    assert list(show_parts(parts)) == [
        "part      state  pid  restarts  addresses",
        "broker    ready    7        12  pulsar://h:1 http://h:2",
        "broker-2  down     -         0",
    ]


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    assert log_tail(log, 2) == []
    log.write_text("one\ntwo\nthree\n")
    assert log_tail(log, 2) == ["two", "three"]
