"""Geo-replication as it is told: three clusters without a common ZooKeeper, the official client.

`geminga cluster up --geo` starts the clusters, and registers each at the others.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, cast

import pulsar
import pytest
from pulsar.schema import AvroSchema
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.geo_clusters import (
    NAMESPACE,
    REPLICATION,
    addresses,
    await_replicated,
    backlogs,
    cursors,
    done,
    introduce,
    replicate,
    stats_of,
)
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_cli.supervisor.operators import Operator
from geminga_runtime.clock import SystemClock
from pytest_geminga.clusters import CLUSTER_UP, SMALL

BEIJING, SHANGHAI, GUIYANG = NAMES = ("pulsar-beijing", "pulsar-shanghai", "pulsar-guiyang")
RECEIVE_TIMEOUT_MS = 60_000
# So long nothing must come that is not to come, when all that is has come.
QUIET_MS = 300


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, StandaloneProcess]]:
    """Three clusters that know each other, whose namespace is not replicated yet."""
    directory = tmp_path_factory.mktemp("geo") / "data"
    options = ("--geo", ",".join(NAMES), *SMALL)
    all_of_them = StandaloneProcess.start(directory, *options, module=CLUSTER_UP)
    members = {name: StandaloneProcess(directory / name, all_of_them.process) for name in NAMES}
    words = (f"{name} {one.service_url} {one.web_service_url}" for name, one in members.items())
    assert all_of_them.output == [" ".join(("READY", *words))]
    introduce(members)
    yield members
    all_of_them.stop()


def metrics_of(cluster: StandaloneProcess, family: str) -> str:
    """The samples of a family of metrics, a line each."""
    with urllib.request.urlopen(f"{cluster.web_service_url}/metrics/") as answer:
        lines = answer.read().decode().splitlines()
    return "\n".join(line for line in lines if line.startswith(family))


class Users:
    """In each cluster a client, with a consumer of ``topic`` from its beginning."""

    def __init__(self, clusters: dict[str, StandaloneProcess], topic: str) -> None:
        self.topic = f"persistent://{NAMESPACE}/{topic}"
        self._open = ExitStack()
        self.clients = {
            name: self._open.enter_context(client_of(cluster.service_url))
            for name, cluster in clusters.items()
        }
        self._consumers = {
            name: client.subscribe(
                self.topic, "my-subscription", initial_position=pulsar.InitialPosition.Earliest
            )
            for name, client in self.clients.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def send(self, where: str, payloads: Iterable[str], **options: Any) -> None:
        producer = self.clients[where].create_producer(
            self.topic, send_timeout_millis=SEND_TIMEOUT_MS
        )
        for payload in payloads:
            producer.send(payload.encode(), **options)
        producer.close()

    def receive(self, where: str, count: int) -> list[str]:
        """The next messages in a cluster, acknowledged."""
        consumer = self._consumers[where]
        found = []
        for _ in range(count):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            consumer.acknowledge(message)
            found.append(message.data().decode())
        return found

    def receives_no_more(self, where: str) -> bool:
        try:
            self._consumers[where].receive(QUIET_MS)
        except pulsar.Timeout:
            return True
        return False


def test_before_replication_nothing_crosses(clusters: dict[str, StandaloneProcess]) -> None:
    replicate(clusters, [SHANGHAI])
    with Users(clusters, "before") as users:
        users.send(SHANGHAI, ["alone"])
        assert users.receive(SHANGHAI, 1) == ["alone"]
        assert users.receives_no_more(BEIJING)
        assert cursors(clusters[SHANGHAI], "before") == set()


def test_each_cluster_gets_each_message_once_and_in_the_order_of_its_origin(
    clusters: dict[str, StandaloneProcess],
) -> None:
    replicate(clusters, NAMES)
    with Users(clusters, "all") as users:
        sent = {name: [f"{name}-{number}" for number in range(20)] for name in NAMES}
        for name in NAMES:
            users.send(name, sent[name])
        for name in NAMES:
            received = users.receive(name, 60)
            for origin in NAMES:
                assert [each for each in received if each in sent[origin]] == sent[origin]
        assert all(users.receives_no_more(name) for name in NAMES)
        # What came from elsewhere is passed over, and the cursor with it.
        await_replicated(clusters, "all")
        assert cursors(clusters[BEIJING], "all") == {SHANGHAI, GUIYANG}
    stats = stats_of(clusters[BEIJING], "all")
    assert stats["publishers"] == []  # users' have left, and replicators are shown by cluster
    for remote in (SHANGHAI, GUIYANG):
        way = stats["replication"][remote]
        assert (way["connected"], way["state"], way.get("reason")) == (True, "running", None)
        assert way["inboundConnection"]
        name = f'topic="persistent://{NAMESPACE}/all",remote_cluster="{remote}"'
        assert f"{name}}} 1" in metrics_of(clusters[BEIJING], "pulsar_replication_connected_count")


NUMBER: dict[str, object] = {"name": "number", "type": "int"}
PRICE: dict[str, object] = {"name": "price", "type": "int", "default": 7}


def orders_with(*fields: dict[str, object]) -> AvroSchema:
    definition = {"type": "record", "name": "Order", "fields": list(fields)}
    made: AvroSchema = cast("Any", AvroSchema)(None, schema_definition=definition)
    return made


def definitions(cluster: StandaloneProcess, topic: str) -> list[str]:
    """The versions of a topic's schema, as far as there are any."""
    status, answer = rest(
        cluster.web_service_url, "GET", f"/admin/v2/schemas/{NAMESPACE}/{topic}/schemas"
    )
    return [each["data"] for each in answer["getSchemaResponses"]] if status == 200 else []


def test_schemas_are_replicated_with_their_messages(clusters: dict[str, StandaloneProcess]) -> None:
    replicate(clusters, NAMES)
    topic = f"persistent://{NAMESPACE}/orders"
    near, far = clusters[BEIJING], clusters[SHANGHAI]
    with client_of(near.service_url) as here, client_of(far.service_url) as there:
        for price in ({}, {"price": 3}):
            schema = orders_with(NUMBER, *([PRICE] if price else []))
            producer = here.create_producer(topic, schema=schema)
            producer.send({"number": 1, **price})
            producer.close()
        schemas = eventually(lambda: definitions(far, "orders"), lambda found: len(found) == 2)
        assert schemas == definitions(near, "orders")
        consumer = there.subscribe(
            topic,
            "s",
            schema=orders_with(NUMBER, PRICE),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = [consumer.receive(RECEIVE_TIMEOUT_MS).value() for _ in range(2)]
        assert found == [{"number": 1, "price": 7}, {"number": 1, "price": 3}]


def test_a_message_is_replicated_only_to_the_clusters_that_it_names(
    clusters: dict[str, StandaloneProcess],
) -> None:
    replicate(clusters, NAMES)
    with Users(clusters, "selected") as users:
        users.send(SHANGHAI, ["some"], replication_clusters=[SHANGHAI, BEIJING])
        users.send(SHANGHAI, ["none"], disable_replication=True)
        users.send(SHANGHAI, ["all"])
        assert users.receive(BEIJING, 2) == ["some", "all"]
        assert users.receive(GUIYANG, 1) == ["all"]
        assert users.receive(SHANGHAI, 3) == ["some", "none", "all"]


def replicate_topic(clusters: dict[str, StandaloneProcess], where: str, topic: str) -> str:
    """The path of the clusters of a topic that is there by then, in one of the clusters."""
    path = f"/admin/v2/persistent/{NAMESPACE}/{topic}"
    if rest(clusters[where].web_service_url, "GET", f"{path}/stats")[0] == 404:
        done(clusters[where], "PUT", path)
    return f"{path}/replication"


def test_a_single_topic_is_replicated_where_its_namespace_is_not(
    clusters: dict[str, StandaloneProcess],
) -> None:
    for name in NAMES:
        replicate(clusters, [name])
    near = clusters[BEIJING]
    with Users(clusters, "alone") as alone, Users(clusters, "beside") as beside:
        path = replicate_topic(clusters, BEIJING, "alone")
        assert done(near, "GET", path) is None
        assert done(near, "GET", f"{path}?applied=true") == [BEIJING]
        done(near, "POST", path, [BEIJING, SHANGHAI])
        assert done(near, "GET", path) == [BEIJING, SHANGHAI]
        eventually(lambda: cursors(near, "alone"), {SHANGHAI}.__eq__, timeout_s=1)
        beside.send(BEIJING, ["stays"])
        alone.send(BEIJING, ["goes"])
        assert alone.receive(SHANGHAI, 1) == ["goes"]
        assert alone.receives_no_more(GUIYANG)
        assert beside.receives_no_more(SHANGHAI)
        # The other way nothing was said.
        alone.send(SHANGHAI, ["stays there"])
        assert alone.receive(SHANGHAI, 1) == ["stays there"]
        assert alone.receive(BEIJING, 1) == ["goes"]
        assert alone.receives_no_more(BEIJING)
        done(near, "DELETE", path)
        eventually(lambda: cursors(near, "alone"), set[str]().__eq__, timeout_s=1)
        assert done(near, "GET", path) is None
        assert cursors(near, "beside") == set()


def partitions_of(cluster: StandaloneProcess, topic: str) -> int:
    """How many partitions a topic has there, 0 where there is none of that name."""
    path = f"/admin/v2/persistent/{NAMESPACE}/{topic}/partitions"
    status, answer = rest(cluster.web_service_url, "GET", path)
    return 0 if status == 404 else int(answer["partitions"])


def test_a_partitioned_topic_has_as_many_partitions_in_each_cluster(
    clusters: dict[str, StandaloneProcess],
) -> None:
    replicate(clusters, NAMES)
    near, path = clusters[BEIJING], f"/admin/v2/persistent/{NAMESPACE}/parted/partitions"
    done(near, "PUT", path, 2)
    for name in NAMES:
        eventually(partial(partitions_of, clusters[name], "parted"), (2).__eq__)
    done(near, "POST", path, 3)
    assert [partitions_of(clusters[name], "parted") for name in NAMES] == [3, 3, 3]
    with Users(clusters, "parted-partition-2") as users:
        users.send(BEIJING, ["in the last"])
        assert users.receive(GUIYANG, 1) == ["in the last"]
    done(clusters[SHANGHAI], "POST", f"{path}?updateLocalTopicOnly=true", 4)
    status, answer = rest(near.web_service_url, "POST", path, 3)
    assert (status, answer["reason"]) == (
        422,
        f"{SHANGHAI} refuses it: Desired partitions 3 can't be less than the current partitions 4.",
    )


def test_a_topic_with_other_partitions_elsewhere_waits_and_says_so(
    clusters: dict[str, StandaloneProcess],
) -> None:
    replicate(clusters, NAMES)
    near, path = clusters[BEIJING], f"/admin/v2/persistent/{NAMESPACE}/differs/partitions"
    done(clusters[SHANGHAI], "PUT", f"{path}?createLocalTopicOnly=true", 2)
    done(near, "PUT", path, 3)
    with Users(clusters, "differs-partition-1") as users:
        users.send(BEIJING, ["waits"])
        assert users.receive(GUIYANG, 1) == ["waits"]
        stats = eventually(
            lambda: stats_of(near, "differs-partition-1")["replication"][SHANGHAI],
            lambda way: "reason" in way,
        )
        assert stats["replicationBacklog"] == 1
        assert stats["reason"].startswith(
            f"persistent://{NAMESPACE}/differs has 3 partitions here and 2 partitions in {SHANGHAI}"
        )
        assert partitions_of(clusters[SHANGHAI], "differs") == 2
        done(clusters[SHANGHAI], "POST", f"{path}?updateLocalTopicOnly=true", 3)
        assert users.receive(SHANGHAI, 1) == ["waits"]


def test_a_cluster_gathers_what_others_publish_and_sends_nothing(
    clusters: dict[str, StandaloneProcess],
) -> None:
    """Each cluster says for itself where its topics go: two to the third, which goes nowhere."""
    for name in (BEIJING, SHANGHAI):
        done(clusters[name], "POST", REPLICATION, [name, GUIYANG])
    replicate(clusters, [GUIYANG])
    with Users(clusters, "gathered") as users:
        sent = {name: [f"{name}-{number}" for number in range(10)] for name in (BEIJING, SHANGHAI)}
        for name, payloads in sent.items():
            users.send(name, payloads)
        users.send(GUIYANG, ["stays"])
        gathered = users.receive(GUIYANG, 21)
        for payloads in sent.values():
            assert [each for each in gathered if each in payloads] == payloads
        assert gathered.count("stays") == 1
        for name, payloads in sent.items():
            assert users.receive(name, 10) == payloads
            assert users.receives_no_more(name)
        assert users.receives_no_more(GUIYANG)
        assert [cursors(clusters[name], "gathered") for name in NAMES] == [
            {GUIYANG},
            {GUIYANG},
            set(),
        ]
        replicate(clusters, NAMES)


def test_a_cluster_that_is_taken_out_gets_nothing_more_and_has_no_cursor(
    clusters: dict[str, StandaloneProcess],
) -> None:
    replicate(clusters, NAMES)
    with Users(clusters, "taken-out") as users:
        users.send(SHANGHAI, ["first"])
        assert [users.receive(name, 1) for name in NAMES] == [["first"]] * 3
        replicate(clusters, [BEIJING, SHANGHAI])
        eventually(lambda: cursors(clusters[SHANGHAI], "taken-out"), {BEIJING}.__eq__)
        users.send(SHANGHAI, ["second"])
        assert users.receive(BEIJING, 1) == ["second"]
        assert users.receives_no_more(GUIYANG)
        replicate(clusters, NAMES)


def test_a_cluster_that_was_away_gets_what_it_missed_where_it_is_now(
    clusters: dict[str, StandaloneProcess], request: pytest.FixtureRequest
) -> None:
    """The whole cluster is lost, with its brokers, bookies and ZooKeeper, and comes back on other
    ports with what it had stored."""
    replicate(clusters, NAMES)
    numbers = [str(number) for number in range(40)]
    with Users(clusters, "away") as users:
        users.send(SHANGHAI, numbers[:20])
        assert users.receive(GUIYANG, 20) == numbers[:20]
    lost = clusters[GUIYANG]
    asyncio.run(Operator(lost.data_directory, SystemClock()).stop())
    with Users({SHANGHAI: clusters[SHANGHAI]}, "away") as users:
        users.send(SHANGHAI, numbers[20:])
    assert backlogs(clusters[SHANGHAI], "away")[GUIYANG] >= 1
    found = StandaloneProcess.start(
        lost.data_directory, "--cluster", GUIYANG, *SMALL, module=CLUSTER_UP
    )
    request.addfinalizer(found.stop)
    clusters[GUIYANG] = found
    for name in (BEIJING, SHANGHAI):
        record = addresses(clusters[GUIYANG])
        done(clusters[name], "POST", f"/admin/v2/clusters/{GUIYANG}", record)
    await_replicated(clusters, "away")
    with Users(clusters, "away") as users:
        assert users.receive(GUIYANG, 20) == numbers[20:]
        assert users.receives_no_more(GUIYANG)
