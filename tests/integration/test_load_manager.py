"""Proves with real processes that the leader moves a hot bundle to the broker with less to do, and
that its producers go on sending meanwhile."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
from tests.integration.broker_group import BrokerGroup, broker_group
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.waiting import eventually

# Rates are measured, reported and judged every few seconds, and what is sent here is worth a move.
QUICK = (
    *("--stats-period-s", "2", "--load-balancer-report-interval-min-s", "1"),
    *("--load-balancer-shedding-interval-s", "2", "--load-balancer-shedding-rate-min", "50"),
)
SUBSCRIPTION = "everything"
TOPICS = [f"persistent://public/default/hot-{number}" for number in range(12)]


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerGroup]:
    with broker_group(tmp_path_factory.mktemp("group"), brokers=0) as started:
        started.start_broker(*QUICK)
        yield started


def test_a_broker_that_joins_is_given_a_hot_bundle_while_it_is_published_to(
    group: BrokerGroup,
) -> None:
    (first,) = group.brokers
    with client_of(group.service_url) as client:
        for topic in TOPICS:
            client.subscribe(topic, SUBSCRIPTION).close()
        producers = [
            client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS) for topic in TOPICS
        ]
        assert {group.owner(topic).id for topic in TOPICS} == {first.id}
        second = group.start_broker(*QUICK)
        sent = 0

        def send_until_moved() -> bool:
            nonlocal sent
            began_s = time.monotonic()
            while time.monotonic() - began_s < 1:
                for producer in producers:
                    producer.send(bytes(1024))
                    sent += 1
            return any(group.owner(topic).id == second.id for topic in TOPICS)

        eventually(send_until_moved, bool)
        for producer in producers:
            producer.send(b"the last one")
            sent += 1
    status, report = second.rest("GET", "/admin/v2/broker-stats/load-report")
    assert status == 200
    assert report["bundles"]
    assert "bundle moved by load" in first.log.read_text()
    kept = 0
    for topic in TOPICS:
        path = f"/admin/v2/{topic.replace('://', '/')}/stats?getPreciseBacklog=true"
        status, stats = group.owner(topic).rest("GET", path)
        assert status == 200, stats
        kept += stats["subscriptions"][SUBSCRIPTION]["msgBacklog"]
    assert kept >= sent, "nothing acknowledged is lost; what was sent twice may be there twice"
