"""Proves the shape of DATA/endpoints.json and of the line that says the same."""

from __future__ import annotations

import json

from magnetar_cli.supervisor.endpoints import PartEndpoints, endpoints_line, endpoints_text

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
