"""Proves what is said when a cluster is ready, and what `endpoints.json` holds meanwhile."""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_cli.supervisor.endpoints import PartEndpoints
from geminga_cli.supervisor.run import Announcer
from geminga_cli.supervisor.settings import StandaloneSettings

BROKER = PartEndpoints(3, {"pulsar": "pulsar://h:1", "web": "http://h:2"})
READY = {
    "broker": BROKER,
    "zookeeper": PartEndpoints(1, {"address": "h:4"}),
    "bookie": PartEndpoints(2, {"bookie": "h:3"}),
}

# The fleet's: what others need first.
ORDER = ("zookeeper", "bookie", "bookie-2", "broker", "broker-2", "proxy")


def names() -> tuple[str, ...]:
    return ORDER


@pytest.fixture
def settings(tmp_path: Path) -> StandaloneSettings:
    return StandaloneSettings(data_directory=tmp_path)


def endpoints(settings: StandaloneSettings) -> dict[str, object]:
    content: dict[str, object] = json.loads(
        (settings.data_directory / "endpoints.json").read_text()
    )
    return content


def test_ready_comes_first_then_what_to_try_then_the_addresses(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    Announcer(settings, names).announce(READY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "READY pulsar://h:1 http://h:2"
    assert lines[1].startswith("Try:")
    assert lines[-1] == (
        "zookeeper.address=h:4  bookie.bookie=h:3  broker.pulsar=pulsar://h:1  broker.web=http://h:2"
    )


def test_quiet_leaves_out_what_to_try(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    Announcer(replace(settings, quiet=True), names).announce(READY)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_ready_is_said_once_and_the_file_is_kept_right(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(settings, names)
    announcer.announce(READY)
    announcer.announce({**READY, "broker": replace(BROKER, pid=30)})
    assert capsys.readouterr().out.count("READY") == 1
    assert endpoints(settings)["broker"] == {"pid": 30, **BROKER.addresses}
    assert endpoints(settings)["supervisor"] == {"pid": os.getpid()}
    announcer.file.remove()
    assert not (settings.data_directory / "endpoints.json").exists()


def test_the_users_own_zookeeper_is_among_the_addresses(settings: StandaloneSettings) -> None:
    ready = {name: part for name, part in READY.items() if name != "zookeeper"}
    Announcer(replace(settings, zookeeper="zk:2181"), names).announce(ready)
    assert endpoints(settings)["zookeeper"] == {"address": "zk:2181"}


def test_parts_come_in_the_order_of_the_fleet(settings: StandaloneSettings) -> None:
    ready = {**READY, "bookie-2": PartEndpoints(4, {"bookie": "h:5"})}
    Announcer(settings, names).announce(dict(reversed(ready.items())))
    assert tuple(name for name in endpoints(settings) if name in ready) == ORDER[:4]


def test_an_endpoints_file_that_cannot_be_written_ends_nothing(
    settings: StandaloneSettings,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (settings.data_directory / "endpoints.json").mkdir()
    Announcer(settings, names).announce(READY)
    assert capsys.readouterr().out.startswith("READY ")
    assert caplog.messages == ["endpoints not written"]


def test_a_reader_that_has_gone_ends_nothing(
    settings: StandaloneSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As `geminga standalone | head -1`."""

    def write(_words: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys.stdout, "write", write)
    first: list[str] = []
    announcer = Announcer(settings, names, on_first=lambda: first.append("called"))
    announcer.announce(READY)
    announcer.announce(READY)
    assert caplog.messages == ["READY not printed"]
    assert first == ["called"]


def test_clients_are_told_the_first_proxy_or_the_first_broker_that_is_there(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    second = PartEndpoints(4, {"pulsar": "pulsar://h:5", "web": "http://h:6"})
    announcer = Announcer(settings, names)
    announcer.announce({"broker": BROKER, "broker-2": second})
    assert endpoints(settings)["service_url"] == "pulsar://h:1"
    announcer.announce({"broker-2": second})
    assert endpoints(settings)["service_url"] == "pulsar://h:5"
    assert endpoints(settings)["web_service_url"] == "http://h:6"
    proxy = PartEndpoints(5, {"pulsar": "pulsar://h:7", "web": "http://h:8"})
    Announcer(settings, names).announce({"broker": BROKER, "broker-2": second, "proxy": proxy})
    assert endpoints(settings)["service_url"] == "pulsar://h:7"
    assert "READY pulsar://h:7 http://h:8" in capsys.readouterr().out
