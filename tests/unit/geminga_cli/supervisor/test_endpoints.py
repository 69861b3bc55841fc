"""Proves the shape of DATA/endpoints.json and of the line that says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminga_cli.supervisor.endpoints import (
    EndpointsFile,
    PartEndpoints,
    endpoints_line,
    endpoints_text,
)

PARTS = {
    "zookeeper": PartEndpoints(71, {"address": "127.0.0.1:2181"}),
    "broker": PartEndpoints(
        73, {"pulsar": "pulsar://127.0.0.1:6650", "web": "http://127.0.0.1:8080"}
    ),
}


def test_every_address_and_process_is_in_the_file() -> None:
    assert json.loads(endpoints_text(70, PARTS)) == {
        "version": 1,
        "service_url": "pulsar://127.0.0.1:6650",
        "web_service_url": "http://127.0.0.1:8080",
        "supervisor": {"pid": 70},
        "zookeeper": {"pid": 71, "address": "127.0.0.1:2181"},
        "broker": {
            "pid": 73,
            "pulsar": "pulsar://127.0.0.1:6650",
            "web": "http://127.0.0.1:8080",
        },
    }


def test_a_part_that_is_not_ours_has_no_process() -> None:
    text = endpoints_text(70, {"zookeeper": PartEndpoints(None, {"address": "zk:2181"})})
    assert json.loads(text)["zookeeper"] == {"address": "zk:2181"}
    assert "service_url" not in json.loads(text)


def test_the_line_names_every_address_and_its_part() -> None:
    assert endpoints_line(PARTS) == (
        "zookeeper.address=127.0.0.1:2181  broker.pulsar=pulsar://127.0.0.1:6650  "
        "broker.web=http://127.0.0.1:8080"
    )


def test_the_file_is_replaced_as_a_whole_and_removed(tmp_path: Path) -> None:
    file = EndpointsFile(tmp_path)
    file.write("one")
    file.write("two")
    assert (tmp_path / "endpoints.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["endpoints.json"]
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_file_tells_where_zookeeper_is(tmp_path: Path) -> None:
    file = EndpointsFile(tmp_path)
    assert file.zookeeper_address() == ""
    file.write(endpoints_text(70, PARTS))
    assert file.zookeeper_address() == "127.0.0.1:2181"


@pytest.mark.parametrize("rubbish", ["", "{", "[]", "{}", '{"zookeeper": 7}'])
def test_a_file_that_cannot_be_understood_tells_nothing(tmp_path: Path, rubbish: str) -> None:
    file = EndpointsFile(tmp_path)
    file.write(rubbish)
    assert file.zookeeper_address() == ""
