"""Messages that are not acknowledged in time, with the official client: passed over and counted,
but not while they are held back.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

TTL_S = 2
# It is received, and acknowledged, in less time than the first; the second is longer.
DELAYED_TTL_S, DELAY_S = 5, 7
RECEIVE_TIMEOUT_MS = 60_000
NOTHING_MS = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster that looks every half second for what is too old."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BROKER_EXPIRY__CHECK_S", "0.5")
        started = StandaloneProcess.start(tmp_path_factory.mktemp("expiry") / "data")
    yield started
    started.stop()


def new_topic(cluster: StandaloneProcess, namespace: str) -> str:
    """The name of a topic in a namespace of its own."""
    path = f"/admin/v2/namespaces/public/{namespace}"
    assert rest(cluster.web_service_url, "PUT", path) == (204, None)
    return f"persistent://public/{namespace}/topic"


def set_ttl(cluster: StandaloneProcess, namespace: str, ttl_s: int | None) -> None:
    """Have the namespace's messages live so long; for ever with None."""
    path = f"/admin/v2/namespaces/public/{namespace}/messageTTL"
    method = "DELETE" if ttl_s is None else "POST"
    assert rest(cluster.web_service_url, method, path, ttl_s) == (204, None)


def stats(cluster: StandaloneProcess, topic: str) -> Any:
    path = f"/admin/v2/{topic.replace('://', '/')}/stats"
    _, found = rest(cluster.web_service_url, "GET", path)
    return found["subscriptions"]["sub"]


def until(cluster: StandaloneProcess, topic: str, **wanted: int) -> Any:
    """The subscription's stats, once they say so."""
    return eventually(
        lambda: stats(cluster, topic),
        lambda found: all(found[name] == value for name, value in wanted.items()),
    )


def test_messages_that_are_not_acknowledged_in_time_are_passed_over(
    cluster: StandaloneProcess,
) -> None:
    topic = new_topic(cluster, "plain")
    with client_of(cluster.service_url) as client:
        client.subscribe(topic, "sub").close()
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(10):
            producer.send(str(number).encode())
        assert stats(cluster, topic)["msgBacklog"] == 10
        set_ttl(cluster, "plain", TTL_S)
        found = until(cluster, topic, msgBacklog=0)
        assert found["totalMsgExpired"] == 10
        set_ttl(cluster, "plain", None)
        producer.send(b"young")
        consumer = client.subscribe(topic, "sub")
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"young"


def test_a_delayed_message_is_delivered_however_short_its_life(cluster: StandaloneProcess) -> None:
    topic = new_topic(cluster, "delayed")
    set_ttl(cluster, "delayed", DELAYED_TTL_S)
    with client_of(cluster.service_url) as client:
        consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"in an hour", deliver_after=timedelta(hours=1))
        producer.send(b"late", deliver_after=timedelta(seconds=DELAY_S))
        producer.send(b"at once")
        # It stays with the client, unacknowledged, until it is too old.
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"at once"
        until(cluster, topic, totalMsgExpired=1)
        late = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert late.data() == b"late"
        consumer.acknowledge(late)
        found = until(cluster, topic, msgBacklog=1)
        assert (found["msgDelayed"], found["unackedMessages"]) == (1, 0)
        assert found["totalMsgExpired"] == 1
        with pytest.raises(pulsar.Timeout):
            consumer.receive(NOTHING_MS)
