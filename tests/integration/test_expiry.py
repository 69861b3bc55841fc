"""Messages that nobody acknowledges in time, with the official client: passed over and counted, but
not while they are held back.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pulsar
import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.integration.official_client import client_of
from tests.integration.rest import rest
from tests.integration.waiting import eventually

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/"
TTL_S = 2
RECEIVE_TIMEOUT_MS = 30_000
NOTHING_MS = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster that looks every half second for what is too old."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MAGNETAR_BROKER_EXPIRY__CHECK_S", "0.5")
        started = StandaloneProcess.start(tmp_path_factory.mktemp("expiry") / "data")
    assert rest(started.web_service_url, "POST", f"{NAMESPACE}/messageTTL", TTL_S) == (204, None)
    yield started
    started.stop()


def stats(cluster: StandaloneProcess, topic: str) -> Any:
    path = f"/admin/v2/persistent/public/default/{topic}/stats"
    _, found = rest(cluster.web_service_url, "GET", path)
    return found["subscriptions"]["sub"]


def until(cluster: StandaloneProcess, topic: str, **wanted: int) -> None:
    """Return once the subscription's stats say so."""
    eventually(
        lambda: stats(cluster, topic),
        lambda found: all(found[name] == value for name, value in wanted.items()),
    )


def test_what_nobody_takes_in_time_is_passed_over(cluster: StandaloneProcess) -> None:
    with client_of(cluster.service_url) as client:
        client.subscribe(TOPIC + "plain", "sub").close()
        producer = client.create_producer(TOPIC + "plain", batching_enabled=False)
        for number in range(10):
            producer.send(str(number).encode())
        assert stats(cluster, "plain")["msgBacklog"] == 10
        until(cluster, "plain", msgBacklog=0)
        assert stats(cluster, "plain")["totalMsgExpired"] == 10
        producer.send(b"young")
        consumer = client.subscribe(TOPIC + "plain", "sub")
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"young"


def test_a_delayed_message_is_delivered_however_short_its_life(cluster: StandaloneProcess) -> None:
    with client_of(cluster.service_url) as client:
        consumer = client.subscribe(
            TOPIC + "delayed", "sub", consumer_type=pulsar.ConsumerType.Shared
        )
        producer = client.create_producer(TOPIC + "delayed", batching_enabled=False)
        producer.send(b"late", deliver_after=timedelta(seconds=3 * TTL_S))
        producer.send(b"at once")
        # It stays with the client, unacknowledged, until it is too old.
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() == b"at once"
        until(cluster, "delayed", totalMsgExpired=1)
        found = stats(cluster, "delayed")
        assert (found["msgBacklog"], found["msgDelayed"], found["unackedMessages"]) == (1, 1, 0)
        late = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert late.data() == b"late"
        consumer.acknowledge(late)
        until(cluster, "delayed", msgBacklog=0)
        assert stats(cluster, "delayed")["totalMsgExpired"] == 1
        with pytest.raises(pulsar.Timeout):
            consumer.receive(NOTHING_MS)
