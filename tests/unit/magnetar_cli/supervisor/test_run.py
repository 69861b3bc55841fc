"""Proves what is said when a cluster is ready, and what `endpoints.json` holds meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar_cli.supervisor.endpoints import PartEndpoints
from magnetar_cli.supervisor.run import Announcer
from magnetar_cli.supervisor.standalone import StandaloneSettings

BROKER = PartEndpoints(3, {"pulsar": "pulsar://h:1", "web": "http://h:2"})
READY = {
    "broker": BROKER,
    "zookeeper": PartEndpoints(1, {"address": "h:4"}),
    "bookie": PartEndpoints(2, {"bookie": "h:3"}),
}


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
    Announcer(settings).announce(READY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "READY pulsar://h:1 http://h:2"
    assert lines[1].startswith("Try:")
    assert lines[-1].startswith("zookeeper.address=h:4  broker.pulsar=pulsar://h:1")


def test_quiet_leaves_out_what_to_try(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    Announcer(replace(settings, is_quiet=True)).announce(READY)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_ready_is_said_once_and_the_file_is_kept_right(
    settings: StandaloneSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(settings)
    announcer.announce(READY)
    announcer.announce({**READY, "broker": replace(BROKER, pid=30)})
    assert capsys.readouterr().out.count("READY") == 1
    assert endpoints(settings)["broker"] == {"pid": 30, **BROKER.addresses}
    assert endpoints(settings)["supervisor"] == {"pid": os.getpid()}
    announcer.close()
    assert not (settings.data_directory / "endpoints.json").exists()


def test_the_users_own_zookeeper_is_among_the_addresses(settings: StandaloneSettings) -> None:
    ready = {name: part for name, part in READY.items() if name != "zookeeper"}
    Announcer(replace(settings, zookeeper="zk:2181")).announce(ready)
    assert endpoints(settings)["zookeeper"] == {"address": "zk:2181"}
