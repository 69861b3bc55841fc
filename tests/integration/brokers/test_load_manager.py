"""Proves with real processes that the leader moves a hot bundle to the broker with less to do, and
splits those that are too large, and that their producers go on sending meanwhile."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.broker_group import BrokerGroup, BrokerProcess, broker_group
from tests.integration.rest import TIMEOUT_S
from tests.integration.waiting import eventually

# Rates are measured, reported and judged every few seconds, and what is sent here is worth a move.
QUICK = (
    *("--stats-period-s", "2", "--load-balancer-report-interval-min-s", "1"),
    *("--load-balancer-shedding-interval-s", "2", "--load-balancer-shedding-rate-min", "50"),
)
SPLITTING = ("--load-balancer-bundle-topics-max", "4", "--load-balancer-split-interval-s", "1")
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
    assert_kept(group, TOPICS, sent)


def test_bundles_with_too_many_topics_are_split_while_they_are_published_to(
    tmp_path: Path,
) -> None:
    with broker_group(tmp_path, brokers=0) as group, ExitStack() as stack:
        leader = group.start_broker(*QUICK, *SPLITTING)
        group.start_broker(*QUICK, *SPLITTING)
        namespace = {"bundles": {"numBundles": 1}}
        status, said = leader.rest("PUT", "/admin/v2/namespaces/public/one", namespace)
        assert status == 204, said
        topics = [topic.replace("default", "one") for topic in TOPICS]
        client = stack.enter_context(client_of(group.service_url))
        for topic in topics:
            client.subscribe(topic, SUBSCRIPTION).close()
        producers = [
            client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS) for topic in topics
        ]
        sent = 0

        def send_until_split() -> list[int]:
            """How many topics the fullest bundle has, as each broker sees it."""
            nonlocal sent
            for producer in producers:
                producer.send(b"one more")
                sent += 1
            bundles = [
                Counter(bundle_of(broker, topic) for topic in topics) for broker in group.brokers
            ]
            return [max(each.values()) for each in bundles]

        eventually(send_until_split, lambda fullest: max(fullest) <= 4)
        for producer in producers:
            producer.send(b"the last one")
            sent += 1
        assert "bundle split by load" in leader.log.read_text()
        assert_kept(group, topics, sent)


def bundle_of(broker: BrokerProcess, topic: str) -> str:
    """The bundle of a topic, as that broker sees it."""
    url = f"{broker.web}/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())  # no JSON, as upstream has it


def assert_kept(group: BrokerGroup, topics: list[str], sent: int) -> None:
    """Nothing acknowledged is lost; what was sent twice may be there twice."""
    kept = 0
    for topic in topics:
        path = f"/admin/v2/{topic.replace('://', '/')}/stats?getPreciseBacklog=true"
        status, stats = group.owner(topic).rest("GET", path)
        assert status == 200, stats
        kept += stats["subscriptions"][SUBSCRIPTION]["msgBacklog"]
    assert kept >= sent
