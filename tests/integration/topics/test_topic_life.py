"""A topic's life on a real cluster: made, used, deleted and made again at once, alone or with its
namespace; terminated."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import metric, rest
from tests.integration.waiting import eventually

from geminga_runtime.clock import SystemClock
from geminga_runtime.coordination import NodeMissing
from geminga_server.zookeeper.session import ZooKeeper

StartStandalone = Callable[..., StandaloneProcess]

NAMESPACE = "/admin/v2/persistent/public/default"
RECEIVE_MS = 60_000
LIVES = 100
LIVES_FULL = 1_000
NAMESPACE_LIVES = 15
# After these everything is there that stays: owners of bundles, the topic of the health check.
WARM_UP_LIVES = 30
# What the broker may grow by in 500 lives. A topic takes some 13 KB while it is there: were one in
# three kept, it would be seen; lists of closed producers and the like grow for a while.
GROWTH_BYTES_MAX = 2 * 1024 * 1024
LEDGER = re.compile(r"^/ledgers/\d\d/\d{4}/L\d{4}$")


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


@dataclass(frozen=True, slots=True)
class Rubble:
    """What a cluster keeps: paths in its ZooKeeper, ledgers on its bookie, memory in its broker."""

    nodes: frozenset[str]
    ledgers: int
    broker_bytes: int

    @classmethod
    def of(cls, cluster: StandaloneProcess) -> Rubble:
        """What there is once the bookie has deleted what is not needed."""
        bookie = cluster.metrics_url("bookie")
        status = Path(f"/proc/{cluster.pid_of('broker')}/statm").read_text()
        nodes = asyncio.run(all_nodes(str(cluster.endpoints["zookeeper"]["address"])))
        known = sum(LEDGER.search(path) is not None for path in nodes)

        def stored_ledgers() -> float:
            # Asked for each time: one that goes on already may have looked before.
            rest(bookie.removesuffix("/metrics/"), "PUT", "/api/v1/bookie/gc")
            return metric(bookie, "bookie_ledgers_count")

        stored = eventually(stored_ledgers, lambda count: count <= known)
        return cls(nodes, int(stored), int(status.split()[1]) * os.sysconf("SC_PAGESIZE"))


async def all_nodes(zookeeper_address: str) -> frozenset[str]:
    """Every path but ZooKeeper's own, and those of parts that are alive."""
    found: set[str] = set()
    async with ZooKeeper(zookeeper_address, SystemClock()) as zookeeper:
        waiting = ["/"]
        while waiting:
            parent = waiting.pop()
            try:
                names = await zookeeper.children(parent)
            except NodeMissing:  # what parts keep for a moment goes while this looks
                found.discard(parent)
                continue
            for name in names:
                path = f"{parent.rstrip('/')}/{name}"
                if not path.startswith("/zookeeper"):
                    found.add(path)
                    waiting.append(path)
    return frozenset(found)


def live_often(cluster: StandaloneProcess, lives: int) -> int:
    """One life after the other, without a pause and without a second try; nothing may be left.

    Returns by how many bytes the broker has grown in the later half of them.
    """
    web = cluster.web_service_url
    with client_of(cluster.service_url) as client:
        for number in range(WARM_UP_LIVES):
            live(client, web, number)
        before = Rubble.of(cluster)
        for number in range(lives // 2):
            live(client, web, number)
        halfway = Rubble.of(cluster)
        for number in range(lives // 2):
            live(client, web, number)
        after = Rubble.of(cluster)
    assert after.nodes == halfway.nodes == before.nodes
    assert after.ledgers == halfway.ledgers == before.ledgers
    return after.broker_bytes - halfway.broker_bytes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster of this test alone, which deletes namespaces by force."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BROKER_FORCE_DELETES_NAMESPACES", "true")
        started = StandaloneProcess.start(tmp_path_factory.mktemp("lives") / "data")
    yield started
    started.stop()


def test_a_deleted_topic_leaves_no_rubble(cluster: StandaloneProcess) -> None:
    live_often(cluster, LIVES)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_topic_deleted_a_thousand_times_leaves_no_rubble(
    start_standalone: StartStandalone,
) -> None:
    assert live_often(start_standalone(), LIVES_FULL) < GROWTH_BYTES_MAX


def live_in_namespace(cluster: StandaloneProcess) -> None:
    """Make a namespace and topics in it, and delete all of it while it is used."""
    web, path = cluster.web_service_url, "/admin/v2/namespaces/public/short-lived"
    assert rest(web, "PUT", path) == (204, None)
    assert rest(web, "PUT", "/admin/v2/persistent/public/short-lived/parts/partitions", 3)[0] == 204
    with client_of(cluster.service_url) as client:
        for name in ("one", "parts"):
            topic = f"persistent://public/short-lived/{name}"
            consumer = client.subscribe(topic, "sub")
            client.create_producer(topic).send(b"x")
            assert consumer.receive(RECEIVE_MS).data() == b"x"
        assert rest(web, "DELETE", path)[0] == 409
        assert rest(web, "DELETE", f"{path}?force=true") == (204, None)
        assert rest(web, "GET", f"{path}/topics")[0] == 404


def test_a_namespace_deleted_while_it_is_used_leaves_no_rubble(
    cluster: StandaloneProcess,
) -> None:
    live_in_namespace(cluster)
    before = Rubble.of(cluster)
    for _ in range(NAMESPACE_LIVES):
        live_in_namespace(cluster)
    after = Rubble.of(cluster)
    assert sorted(after.nodes - before.nodes) == []
    assert after.ledgers == before.ledgers


def test_a_terminated_topic_stays_so_over_a_restart(cluster: StandaloneProcess) -> None:
    with client_of(cluster.service_url) as client:
        consumer = client.subscribe("ended", "sub")
        producer = client.create_producer("ended")
        last = producer.send(b"last")
        status, end = rest(cluster.web_service_url, "POST", f"{NAMESPACE}/ended/terminate")
        assert (status, end["ledgerId"], end["entryId"]) == (200, last.ledger_id(), last.entry_id())
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("ended")
        assert consumer.receive(RECEIVE_MS).data() == b"last"
    cluster.wait_restarted("broker", cluster.kill_part("broker"))
    with client_of(cluster.service_url) as client:
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer("ended")
        assert client.subscribe("ended", "sub").receive(RECEIVE_MS).data() == b"last"


def test_unused_topics_are_deleted_and_created_again_by_their_next_use(
    start_standalone: StartStandalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINGA_BROKER_INACTIVITY__CHECK_S", "0.5")
    cluster = start_standalone()
    web = cluster.web_service_url

    def topics() -> set[str]:
        listed = rest(web, "GET", NAMESPACE)[1]
        return {each.rpartition("/")[2] for each in listed}

    with client_of(cluster.service_url) as client:
        client.create_producer("left").close()
        producer = client.create_producer("published-to")
        client.subscribe("subscribed", "sub").close()
        reader = client.create_reader("read", pulsar.MessageId.earliest)
        assert rest(web, "PUT", f"{NAMESPACE}/made") == (204, None)
        kept = {"published-to", "subscribed", "read"}
        eventually(topics, lambda found: found == kept)
        producer.send(b"it is still mine")
        again = client.create_producer("left")
        assert again.send(b"so is the one that was made anew").entry_id() == 0
        for each in (reader, producer, again):
            each.close()
        eventually(topics, lambda found: found == {"subscribed"})
