"""A live broker's record has the members of upstream's, in their order."""

from __future__ import annotations

import json

from tests.project_files import GOLDEN

from geminga_protocol.records.cluster.brokers import (
    LeaderBroker,
    LocalBrokerData,
    ResourceUsage,
    TimeAverageBrokerData,
    broker_path,
    time_average_path,
)

RECORDED = GOLDEN / "records" / "zookeeper.jsonl"


def recorded(prefix: str) -> list[bytes]:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return [line["text"].encode() for line in lines if line["path"].startswith(prefix)]


def test_a_broker_without_load_is_the_recorded_one() -> None:
    unknown = -1000.0
    broker = LocalBrokerData(
        web_service_url="http://127.0.0.1:28080",
        pulsar_service_url="pulsar://127.0.0.1:26650",
        cpu=ResourceUsage(usage=3.3626915196995294e-4, limit=200.0),
        memory=ResourceUsage(usage=156.0, limit=512.0),
        direct_memory=ResourceUsage(usage=0.0, limit=512.0),
        bandwidth_in=ResourceUsage(limit=unknown),
        bandwidth_out=ResourceUsage(limit=unknown),
        last_update=1795230909774,
        broker_version_string="4.0.6",
        start_timestamp=1795230909774,
        max_resource_usage=1.6813457932585152e-6,
    )
    assert broker.encode() == recorded("/loadbalance/brokers/")[0]


def test_averages_of_a_new_broker_are_the_recorded_ones() -> None:
    assert TimeAverageBrokerData().encode() == recorded("/loadbalance/broker-time-average/")[0]


def test_the_leader_is_the_recorded_one() -> None:
    leader = LeaderBroker(broker_id="127.0.0.1:28080", service_url="http://127.0.0.1:28080")
    assert leader.encode() == recorded("/loadbalance/leader")[0]


def test_a_broker_stands_under_its_id() -> None:
    assert broker_path("h:8080") == "/loadbalance/brokers/h:8080"
    assert time_average_path("h:8080") == "/loadbalance/broker-time-average/h:8080"
