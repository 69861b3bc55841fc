"""Proves what the options of `geminga standalone`, its variables and its file mean."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from geminga_cli.commands.standalone import launch, parse
from geminga_cli.errors import StartFailed
from geminga_cli.supervisor.lifecycle.orders import PartRules
from geminga_cli.supervisor.process import Process
from geminga_cli.supervisor.settings import NO_FILE
from geminga_server.errors import ConfigError


def test_without_options_it_is_a_safe_cluster_on_the_usual_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings, file = parse([])
    assert settings.data_directory == tmp_path / "data"
    assert settings.bind_address == "127.0.0.1"
    assert settings.sync
    assert not settings.quiet
    ports = (settings.broker_port, settings.web_port, settings.bookie_port, settings.zookeeper_port)
    assert ports == (6650, 8080, 3181, 2181)
    assert file == NO_FILE


def test_every_option_arrives() -> None:
    ports = ["--broker-port", "0", "--web-port", "1", "--bookie-port", "2", "--zookeeper-port", "3"]
    addresses = ["--zookeeper", "zk:2181", "--bind-address", "0.0.0.0", "--num-bookies", "3"]
    more = ["--advertised-address", "example.org", "--no-sync", "--quiet", "--json-logs"]
    settings, _ = parse(["--data-dir", "/d", "--hang-limit", "7", *ports, *addresses, *more])
    assert settings.data_directory == Path("/d")
    assert (settings.broker_port, settings.web_port) == (0, 1)
    assert (settings.bookie_port, settings.zookeeper_port) == (2, 3)
    assert settings.zookeeper == "zk:2181"
    assert settings.num_bookies == 3
    assert settings.bind_address == "0.0.0.0"
    assert settings.advertised_host == "example.org"
    assert settings.hang_limit_s == 7
    assert not settings.sync
    assert settings.quiet
    assert settings.log_json


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--web-port 65536", "--web-port = 65536: should be less than or equal to 65535"),
        ("--web-port -1", "--web-port = -1: should be greater than or equal to 0"),
        ("--num-bookies 17", "--num-bookies = 17: should be less than or equal to 16"),
        ("--hang-limit -1", "--hang-limit-s = -1.0: should be greater than or equal to 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_reason(words: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(words.split())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--web-port x", "argument --web-port: invalid int value: 'x'"),
        ("--data x", "unrecognized arguments: --data x"),
    ],
)
def test_what_is_no_number_or_no_option_is_refused_with_the_usage(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words.split())
    told = capsys.readouterr().err
    assert "usage: geminga standalone" in told
    assert reason in told


def test_a_file_is_overruled_by_variables_and_these_by_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "geminga.toml"
    file.write_text(
        "[standalone]\nbroker_port = 1\nweb_port = 2\nbookie_port = 3\nsync = false\n"
        "[broker.log]\nack_quorum = 2\n[bookie]\ngc_interval_s = 9.0\n"
        "[zookeeper]\nheap_max_mib = 99\n"
    )
    monkeypatch.setenv("GEMINGA_STANDALONE_WEB_PORT", "20")
    monkeypatch.setenv("GEMINGA_STANDALONE_BOOKIE_PORT", "30")
    settings, told = parse(["--config", str(file), "--bookie-port", "300"])
    assert (settings.broker_port, settings.web_port, settings.bookie_port) == (1, 20, 300)
    assert not settings.sync
    assert told.path == file
    assert told.heap_max_mib == 99
    assert told.names("broker") == {"log.ack_quorum"}
    assert told.names("bookie") == {"gc_interval_s"}


class UnlaunchablePart:
    """A part that finds no room for its files."""

    rules = PartRules("zookeeper", stop_deadline_s=1.0)
    log_file: Path | None = None

    def launch(self) -> Process:
        raise OSError(errno.ENOSPC, "No space left on device")

    def release(self) -> None:
        raise AssertionError("it never ran")


def test_a_part_that_cannot_be_launched_at_the_very_start_is_named_with_the_reason() -> None:
    with pytest.raises(StartFailed, match=r"zookeeper did not start: .*No space left on device"):
        launch({"zookeeper": UnlaunchablePart()}, ["zookeeper"])
