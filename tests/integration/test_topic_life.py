"""A topic's life on a real cluster: made, used, deleted and made again at once; terminated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulsar
import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.integration.official_client import client_of
from tests.integration.rest import rest

NAMESPACE = "/admin/v2/persistent/public/default"
RECEIVE_MS = 15_000
LIVES = 100
LIVES_FULL = 1_000


def live(client: Any, web: str, number: int) -> None:
    """Make a topic, use it, delete it: nothing of an earlier life may show, nothing may fail."""
    name = "short-lived"
    path = f"{NAMESPACE}/{name}"
    if number % 2:
        assert rest(web, "PUT", path) == (204, None)
    consumer = client.subscribe(name, "sub")
    producer = client.create_producer(name)
    body = str(number).encode()
    producer.send(body)
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == body
    consumer.acknowledge(message)
    producer.close()
    if number % 3:
        consumer.close()
        assert rest(web, "DELETE", path) == (204, None)
    else:
        consumer.unsubscribe()
        assert rest(web, "DELETE", f"{path}?force=true") == (204, None)
    status, topics = rest(web, "GET", NAMESPACE)
    assert status == 200
    assert f"persistent://public/default/{name}" not in topics
    assert rest(web, "GET", f"{path}/stats")[0] == 404


def live_often(standalone: StandaloneProcess, lives: int) -> None:
    """One life after the other, without a pause and without a second try."""
    web = standalone.web_service_url
    with client_of(standalone.service_url) as client:
        for number in range(lives):
            live(client, web, number)


def test_a_deleted_topic_leaves_no_rubble(standalone: StandaloneProcess) -> None:
    live_often(standalone, LIVES)


@pytest.mark.full
def test_a_topic_deleted_a_thousand_times_leaves_no_rubble(standalone: StandaloneProcess) -> None:
    live_often(standalone, LIVES_FULL)


def test_a_terminated_topic_stays_so_over_a_restart(
    start_standalone: Callable[..., StandaloneProcess],
) -> None:
    cluster = start_standalone()
    with client_of(cluster.service_url) as client:
        consumer = client.subscribe("ended", "sub")
        producer = client.create_producer("ended")
        last = producer.send(b"last")
        status, end = rest(cluster.web_service_url, "POST", f"{NAMESPACE}/ended/terminate")
        assert (status, end["ledgerId"], end["entryId"]) == (200, last.ledger_id(), last.entry_id())
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("ended")
        assert consumer.receive(RECEIVE_MS).data() == b"last"
    cluster.stop()
    again = start_standalone()
    with client_of(again.service_url) as client:
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("ended")
        assert client.subscribe("ended", "sub").receive(RECEIVE_MS).data() == b"last"
