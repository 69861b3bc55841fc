"""The election with bare consumers: two on one Failover subscription, one elsewhere, and the stats.

Each consumer is a process of its own with the official client, as in four terminals.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

# Subscribes, says so, prints and acknowledges what it receives, until a signal ends it.
CONSUME = """
import pulsar, sys
url, topic, subscription, name = sys.argv[1:]
client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
consumer = client.subscribe(
    topic, subscription, consumer_type=pulsar.ConsumerType.Failover, consumer_name=name,
    properties={"terminal": name},
)
print("subscribed", flush=True)
try:
    while True:
        message = consumer.receive()
        print(message.data().decode(), flush=True)
        consumer.acknowledge(message)
except KeyboardInterrupt:
    client.close()
"""
# Every field the story names, with what it must be.
RATE = (int, float)
TOPIC_FIELDS: dict[str, type | tuple[type, ...]] = {
    "msgRateIn": RATE,
    "msgRateOut": RATE,
    "msgThroughputIn": RATE,
    "msgThroughputOut": RATE,
    "averageMsgSize": RATE,
    "storageSize": int,
    "publishers": list,
    "subscriptions": dict,
    "replication": dict,
    "deduplicationStatus": str,
}
SUBSCRIPTION_FIELDS: dict[str, type | tuple[type, ...]] = {
    "msgRateOut": RATE,
    "msgThroughputOut": RATE,
    "msgRateRedeliver": RATE,
    "msgBacklog": int,
    "blockedSubscriptionOnUnackedMsgs": bool,
    "unackedMessages": int,
    "type": str,
    "activeConsumerName": str,
    "msgRateExpired": RATE,
    "consumers": list,
}
CONSUMER_FIELDS: dict[str, type | tuple[type, ...]] = {
    "msgRateOut": RATE,
    "msgThroughputOut": RATE,
    "msgRateRedeliver": RATE,
    "consumerName": str,
    "availablePermits": int,
    "unackedMessages": int,
    "blockedConsumerOnUnackedMsgs": bool,
    "address": str,
    "connectedSince": str,
    "clientVersion": str,
    "metadata": dict,
}

Terminal = subprocess.Popen[str]
OpenTerminal = Callable[[str, str, str], Terminal]


@pytest.fixture
def consume(standalone: StandaloneProcess) -> Generator[OpenTerminal]:
    """Starts a consumer: topic, subscription, name; returns once it is subscribed."""
    terminals: list[Terminal] = []

    def start(topic: str, subscription: str, name: str) -> Terminal:
        terminal = subprocess.Popen(
            [sys.executable, "-c", CONSUME, standalone.service_url, topic, subscription, name],
            stdout=subprocess.PIPE,
            text=True,
        )
        terminals.append(terminal)
        assert next_line(terminal) == "subscribed"
        return terminal

    yield start
    for terminal in terminals:
        terminal.kill()
        with terminal:
            terminal.wait()


def next_line(terminal: Terminal) -> str:
    """What it prints next."""
    assert terminal.stdout is not None
    return terminal.stdout.readline().strip()


def stats_of(cluster: StandaloneProcess, topic: str) -> Any:
    """The stats of ``public/default``'s topic of that short name."""
    status, stats = rest(
        cluster.web_service_url, "GET", f"/admin/v2/persistent/public/default/{topic}/stats"
    )
    assert status == 200, stats
    return stats


def permits_of(stats: Any, subscription: str) -> list[int]:
    """How many more messages each consumer takes, the fewest first."""
    consumers = stats["subscriptions"][subscription]["consumers"]
    return sorted(each["availablePermits"] for each in consumers)


def active_of(cluster: StandaloneProcess, topic: str, subscription: str) -> str | None:
    """The name of the active consumer."""
    name: str | None = stats_of(cluster, topic)["subscriptions"][subscription].get(
        "activeConsumerName"
    )
    return name


def check_fields(shown: dict[str, Any], fields: dict[str, type | tuple[type, ...]]) -> None:
    """Every field is there, each of its type (a JSON true is no number)."""
    wrong = {
        name: shown.get(name, "missing")
        for name, wanted in fields.items()
        if not isinstance(shown.get(name), wanted)
        or (isinstance(shown[name], bool) and wanted is not bool)
    }
    assert not wrong


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name)
def test_when_the_active_consumer_leaves_the_other_becomes_active(
    standalone: StandaloneProcess, consume: OpenTerminal, ending: signal.Signals
) -> None:
    topic = f"topic1-{ending.name}"
    terminals = {name: consume(topic, "sub", name) for name in ("one", "two")}
    first = active_of(standalone, topic, "sub")
    assert first is not None
    with client_of(standalone.service_url) as client:
        producer = client.create_producer(topic)
        producer.send(b"to the first")
        assert next_line(terminals[first]) == "to the first"
        eventually(
            lambda: stats_of(standalone, topic)["subscriptions"]["sub"]["msgBacklog"],
            lambda backlog: backlog == 0,
        )
        terminals[first].send_signal(ending)
        second = eventually(
            lambda: active_of(standalone, topic, "sub"), lambda active: active != first
        )
        assert second is not None
        assert {first, second} == set(terminals)
        producer.send(b"to the second")
        assert next_line(terminals[second]) == "to the second"


def test_the_stats_show_one_failover_subscription_with_every_field(
    standalone: StandaloneProcess, consume: OpenTerminal
) -> None:
    consume("topic1", "sub", "one")
    consume("topic1", "sub", "two")
    consume("topic2", "sub3", "three")
    with client_of(standalone.service_url) as client:
        producer = client.create_producer("topic1", producer_name="somebody")
        producer.send(b"0123456789")
        # A consumer asks for messages, and is sent them, after what it waits for.
        stats = eventually(
            lambda: stats_of(standalone, "topic1"),
            lambda found: permits_of(found, "sub") == [999, 1000],
        )
        check_fields(stats, TOPIC_FIELDS)
        assert [each["producerName"] for each in stats["publishers"]] == ["somebody"]
    assert stats["bytesInCounter"] > 10, "payload and metadata"
    assert stats["storageSize"] > 10
    assert stats["replication"] == {}
    assert stats["deduplicationStatus"] == "Disabled"
    assert list(stats["subscriptions"]) == ["sub"]
    subscription = stats["subscriptions"]["sub"]
    check_fields(subscription, SUBSCRIPTION_FIELDS)
    assert subscription["type"] == "Failover"
    assert subscription["activeConsumerName"] in ("one", "two")
    assert {each["consumerName"] for each in subscription["consumers"]} == {"one", "two"}
    for consumer in subscription["consumers"]:
        check_consumer(
            consumer, is_active=consumer["consumerName"] == subscription["activeConsumerName"]
        )
    elsewhere = stats_of(standalone, "topic2")["subscriptions"]
    assert list(elsewhere) == ["sub3"]
    assert elsewhere["sub3"]["activeConsumerName"] == "three"


def check_consumer(consumer: dict[str, Any], *, is_active: bool) -> None:
    """The active one was sent the message; both have told how much they take."""
    check_fields(consumer, CONSUMER_FIELDS)
    assert consumer["availablePermits"] == (999 if is_active else 1000)
    assert re.fullmatch(r"/127\.0\.0\.1:\d+", consumer["address"])
    assert consumer["clientVersion"].startswith("Pulsar-CPP-v")
    assert consumer["metadata"] == {"terminal": consumer["consumerName"]}
    datetime.fromisoformat(consumer["connectedSince"])


def test_a_consumer_that_joins_leaves_exactly_one_active(
    standalone: StandaloneProcess, consume: OpenTerminal
) -> None:
    terminals = {name: consume("joined", "sub", name) for name in ("one", "two", "three")}
    with client_of(standalone.service_url) as client:
        client.create_producer("joined").send(b"for one")
        active = eventually(
            lambda: active_of(standalone, "joined", "sub"), lambda name: name is not None
        )
        assert active is not None
        assert next_line(terminals[active]) == "for one"
        consumers = stats_of(standalone, "joined")["subscriptions"]["sub"]["consumers"]
        assert sum(each["msgOutCounter"] for each in consumers) == 1


def test_a_subscription_without_consumers_has_no_active_one(
    standalone: StandaloneProcess, consume: OpenTerminal
) -> None:
    consume("left", "sub", "one").send_signal(signal.SIGINT)
    subscription = eventually(
        lambda: stats_of(standalone, "left")["subscriptions"]["sub"],
        lambda each: each["consumers"] == [],
    )
    assert "activeConsumerName" not in subscription
