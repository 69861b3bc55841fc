"""Proves what the options of `geminga standalone` mean."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from geminga_cli.commands.standalone import launch, parse
from geminga_cli.errors import StartFailed
from geminga_cli.supervisor.fleet import PartRules
from geminga_cli.supervisor.process import Process


def test_without_options_it_is_a_safe_cluster_on_the_usual_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = parse([])
    assert settings.data_directory == tmp_path / "data"
    assert settings.bind_address == "127.0.0.1"
    assert settings.is_synced
    assert not settings.is_quiet
    ports = (settings.broker_port, settings.web_port, settings.bookie_port, settings.zookeeper_port)
    assert ports == (6650, 8080, 3181, 2181)


def test_every_option_arrives() -> None:
    ports = ["--broker-port", "0", "--web-port", "1", "--bookie-port", "2", "--zookeeper-port", "3"]
    addresses = ["--zookeeper", "zk:2181", "--bind-address", "0.0.0.0", "--num-bookies", "3"]
    more = ["--advertised-address", "example.org", "--no-sync", "--quiet", "--json-logs"]
    settings = parse(["--data-dir", "/d", *ports, *addresses, *more])
    assert settings.data_directory == Path("/d")
    assert (settings.broker_port, settings.web_port) == (0, 1)
    assert (settings.bookie_port, settings.zookeeper_port) == (2, 3)
    assert settings.zookeeper == "zk:2181"
    assert settings.num_bookies == 3
    assert settings.bind_address == "0.0.0.0"
    assert settings.advertised_host == "example.org"
    assert not settings.is_synced
    assert settings.is_quiet
    assert settings.is_json


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--web-port 65536", "65536 is no port: 0 to 65535"),
        ("--web-port -1", "-1 is no port: 0 to 65535"),
        ("--web-port x", "x is no port: 0 to 65535"),
        ("--num-bookies 0", "0 is no number of bookies: 1 to 16"),
        ("--data x", "unrecognized arguments: --data x"),
    ],
)
def test_what_is_no_port_or_no_option_is_refused_with_the_reason(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words.split())
    assert reason in capsys.readouterr().err


class UnlaunchablePart:
    """A part that finds no room for its files."""

    rules = PartRules("zookeeper", stop_deadline_s=1.0)

    def launch(self) -> Process:
        raise OSError(errno.ENOSPC, "No space left on device")

    def release(self) -> None:
        raise AssertionError("it never ran")


def test_a_part_that_cannot_be_launched_at_the_very_start_is_named_with_the_reason() -> None:
    with pytest.raises(StartFailed, match=r"zookeeper did not start: .*No space left on device"):
        launch({"zookeeper": UnlaunchablePart()}, ["zookeeper"])
