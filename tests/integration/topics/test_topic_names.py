"""Any character may stand in a topic's name: REST and the binary protocol mean the same topic.

A name goes percent-encoded into a URL, whose path is decoded exactly once.
"""

from __future__ import annotations

from urllib.parse import quote

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

NAMESPACE = "public/default"
RECEIVE_TIMEOUT_MS = 60_000
LOCAL_NAMES = (
    "a/b %?",
    "%2F",  # decoded twice it would be another name
    "a+b&c=d#e",
    "Grüße 世界",
    "stats",  # the word that ends the paths of REST
)


def topic_path(local_name: str) -> str:
    return f"/admin/v2/persistent/{NAMESPACE}/{quote(local_name, safe='')}"


@pytest.mark.parametrize("local_name", LOCAL_NAMES)
def test_a_topic_lives_its_life_under_any_name(
    standalone: StandaloneProcess, local_name: str
) -> None:
    url, path = standalone.web_service_url, topic_path(local_name)
    topic = f"persistent://{NAMESPACE}/{local_name}"

    assert rest(url, "PUT", path) == (204, None)
    status, refusal = rest(url, "PUT", path)
    assert status == 409, refusal

    with client_of(standalone.service_url) as client:
        consumer = client.subscribe(topic, "sub")
        client.create_producer(topic).send(b"hello")
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert message.topic_name() == topic
        consumer.acknowledge(message)
        assert topic in client.get_topic_partitions(topic)

        status, stats = rest(url, "GET", f"{path}/stats")
        assert status == 200, stats
        assert stats["msgInCounter"] == 1
        assert len(stats["publishers"]) == 1

        status, found = rest(url, "GET", f"/lookup/v2/topic{path.removeprefix('/admin/v2')}")
        assert (status, found["brokerUrl"]) == (200, standalone.service_url)

        status, listed = rest(url, "GET", f"/admin/v2/persistent/{NAMESPACE}")
        assert topic in listed

        status, refusal = rest(url, "DELETE", path)
        assert status == 412, "it is in use"

    assert rest(url, "DELETE", f"{path}?force=true") == (204, None)
    assert rest(url, "GET", f"{path}/stats")[0] == 404
    assert topic not in rest(url, "GET", f"/admin/v2/persistent/{NAMESPACE}")[1]


def test_the_partitions_of_such_a_topic_have_its_name(standalone: StandaloneProcess) -> None:
    url, path = standalone.web_service_url, topic_path("p/q %?")
    topic = f"persistent://{NAMESPACE}/p/q %?"
    assert rest(url, "PUT", f"{path}/partitions", 3) == (204, None)
    status, partitioned = rest(url, "GET", f"{path}/partitions")
    assert (status, partitioned["partitions"]) == (200, 3)
    names = [f"{topic}-partition-{index}" for index in range(3)]
    with client_of(standalone.service_url) as client:
        assert client.get_topic_partitions(topic) == names
        consumer = client.subscribe(topic, "sub")
        producer = client.create_producer(
            topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
        )
        for number in range(3):
            producer.send(str(number).encode())
        received = {consumer.receive(RECEIVE_TIMEOUT_MS).data() for _ in range(3)}
        assert received == {b"0", b"1", b"2"}
    assert rest(url, "GET", f"{path}-partition-2/stats")[1]["msgInCounter"] == 1
    assert rest(url, "DELETE", f"{path}/partitions?force=true") == (204, None)
    assert rest(url, "GET", f"{path}-partition-2/stats")[0] == 404


def test_names_that_differ_only_in_their_encoding_are_different_topics(
    standalone: StandaloneProcess,
) -> None:
    with client_of(standalone.service_url) as client:
        for number, local_name in enumerate(("x y", "x%20y", "x+y")):
            producer = client.create_producer(f"persistent://{NAMESPACE}/{local_name}")
            for _ in range(number + 1):
                producer.send(b"")
    counts = [
        rest(standalone.web_service_url, "GET", f"{topic_path(local_name)}/stats")[1][
            "msgInCounter"
        ]
        for local_name in ("x y", "x%20y", "x+y")
    ]
    assert counts == [1, 2, 3]
