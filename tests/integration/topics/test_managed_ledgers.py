"""Topics as logs on a real cluster of three bookies: ledgers turn over and go, cursors are moved,
and namespaces' policies hold, as an administrator sees and asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.records.ledgers.ledger_metadata import ledger_path
from geminga_runtime.clock import SystemClock
from geminga_server.zookeeper.session import ZooKeeper

LEDGER_ENTRIES = 10
SETTINGS = {
    "LOG__LEDGER_ENTRIES_MAX": str(LEDGER_ENTRIES),
    "LOG__LEDGER_AGE_MIN_S": "0",
    "LOG__SWEEP_PERIOD_S": "0.5",
    "LOG__CURSOR_FLUSH_DELAY_S": "0.01",
    "BACKLOG_QUOTA_CHECK_S": "0.5",
}
RECEIVE_TIMEOUT_MS = 60_000
SUBSCRIPTION = "sub"


@dataclass
class Admin:
    """REST calls about one namespace of the cluster, and its topics."""

    cluster: StandaloneProcess
    namespace: str

    def topic(self, name: str) -> str:
        return f"persistent://{self.namespace}/{name}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer of a request that succeeds."""
        url = self.cluster.web_service_url
        status, answer = rest(url, method, f"/admin/v2/{path}", body)
        assert status in (200, 204), (status, answer)
        return answer

    def set_policy(self, name: str, body: object) -> None:
        self.ask("POST", f"namespaces/{self.namespace}/{name}", body)

    def to_topic(self, method: str, topic: str, what: str) -> Any:
        return self.ask(method, f"persistent/{self.namespace}/{topic}/{what}")

    def insides(self, topic: str) -> Any:
        return self.to_topic("GET", topic, "internalStats?metadata=true")

    def backlog(self, topic: str) -> int:
        stats = self.to_topic("GET", topic, "stats")
        return int(stats["subscriptions"][SUBSCRIPTION]["msgBacklog"])

    def ledgers(self, topic: str) -> list[int]:
        return [each["ledgerId"] for each in self.insides(topic)["ledgers"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """Three bookies, and a broker whose ledgers have ten entries and are looked after often."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SETTINGS.items():
            environment.setenv(f"GEMINGA_BROKER_{name}", value)
        started = StandaloneProcess.start(
            tmp_path_factory.mktemp("ledgers") / "data", "--num-bookies", "3"
        )
    yield started
    started.stop()


@pytest.fixture
def client(cluster: StandaloneProcess) -> Generator[Any]:
    """The official client."""
    with client_of(cluster.service_url) as opened:
        yield opened


def admin_of(cluster: StandaloneProcess, namespace: str) -> Admin:
    """With a namespace of its own."""
    admin = Admin(cluster, f"public/{namespace}")
    admin.ask("PUT", f"namespaces/{admin.namespace}", {})
    return admin


def body(number: int) -> bytes:
    return b"message %d of some length" % number


def publish(producer: Any, numbers: Iterable[int]) -> None:
    for number in numbers:
        producer.send(body(number))


def consume(consumer: Any, numbers: Iterable[int]) -> None:
    """Receive exactly these, in order, and acknowledge them."""
    for number in numbers:
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert message.data() == body(number)
        consumer.acknowledge(message)


def known_to_zookeeper(cluster: StandaloneProcess, ledger_ids: Iterable[int]) -> list[int]:
    """Those of the ledgers that have a node."""

    async def look() -> list[int]:
        address = str(cluster.endpoints["zookeeper"]["address"])
        async with ZooKeeper(address, SystemClock()) as zookeeper:
            return [each for each in ledger_ids if await zookeeper.exists(ledger_path(each))]

    return asyncio.run(look())


def test_ledgers_turn_over_and_go_when_they_are_consumed(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "life")
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(35))
    insides = admin.insides("t")
    full = [each["ledgerId"] for each in insides["ledgers"][:3]]
    assert [each["entries"] for each in insides["ledgers"][:3]] == [LEDGER_ENTRIES] * 3
    assert (insides["numberOfEntries"], insides["entriesAddedCounter"]) == (35, 35)
    assert "state=CLOSED" in insides["ledgers"][0]["metadata"]
    consume(consumer, range(35))
    left = eventually(lambda: admin.ledgers("t"), lambda ids: not set(ids) & set(full))
    assert left
    assert eventually(lambda: known_to_zookeeper(cluster, full), lambda known: not known) == []
    stored = admin.to_topic("GET", "t", "internal-info")
    assert [each["ledgerId"] for each in stored["ledgers"]] == left
    assert stored["creationDate"] < stored["modificationDate"]
    assert list(stored["cursors"]) == [SUBSCRIPTION]
    # A client acknowledges in groups: the last may still be on its way.
    insides = eventually(
        lambda: admin.insides("t"),
        lambda found: (
            found["cursors"][SUBSCRIPTION]["markDeletePosition"] == found["lastConfirmedEntry"]
        ),
    )
    assert insides["cursors"][SUBSCRIPTION]["active"]


def test_a_truncated_topic_is_empty_for_its_subscriptions(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "truncation")
    admin.set_policy("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    consumer.close()
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(15))
    former = admin.ledgers("t")
    admin.to_topic("DELETE", "t", "truncate")
    insides = admin.insides("t")
    assert (insides["numberOfEntries"], insides["totalSize"]) == (0, 0)
    assert not set(admin.ledgers("t")) & set(former)
    eventually(lambda: known_to_zookeeper(cluster, former), [].__eq__)
    publish(producer, [15])
    consume(client.subscribe(admin.topic("t"), SUBSCRIPTION), [15])


def test_an_unloaded_topic_loses_no_message_and_no_client(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "unloading")
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(5))
    consume(consumer, range(5))
    eventually(lambda: admin.backlog("t"), lambda backlog: not backlog)  # a client acks in groups
    admin.to_topic("PUT", "t", "unload")
    publish(producer, range(5, 10))
    admin.ask("PUT", f"namespaces/{admin.namespace}/unload")
    publish(producer, range(10, 15))
    consume(consumer, range(5, 15))


def test_retention_keeps_what_is_consumed_until_it_is_taken_away(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "retention")
    admin.set_policy("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(25))
    consume(consumer, range(25))
    admin.to_topic("POST", "t", "trim")
    assert admin.insides("t")["numberOfEntries"] == 25
    reader = client.create_reader(admin.topic("t"), pulsar.MessageId.earliest)
    assert reader.read_next(RECEIVE_TIMEOUT_MS).data() == body(0)
    reader.close()
    admin.ask("DELETE", f"namespaces/{admin.namespace}/retention")
    eventually(lambda: admin.insides("t")["numberOfEntries"], lambda entries: entries <= 5)


def test_persistence_holds_for_the_next_ledger_of_topic_and_cursor(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "persistence")
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(3))
    (before,) = admin.insides("t")["ledgers"]
    assert "ensembleSize=3, writeQuorumSize=3, ackQuorumSize=2" in before["metadata"]
    quorums = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    admin.set_policy("persistence", {**quorums, "managedLedgerMaxMarkDeleteRate": 0})

    def published_on(sizes: str) -> bool:
        publish(producer, range(LEDGER_ENTRIES))
        return sizes in admin.insides("t")["ledgers"][-1]["metadata"]

    eventually(lambda: published_on("ensembleSize=2, writeQuorumSize=1, ackQuorumSize=1"), bool)
    consumer.close()
    fresh = client.create_producer(admin.topic("fresh"))
    publish(fresh, [0])
    (ledger,) = admin.insides("fresh")["ledgers"]
    assert "ensembleSize=2, writeQuorumSize=1, ackQuorumSize=1" in ledger["metadata"]


def test_a_producer_is_refused_until_consumers_have_reduced_the_backlog(
    cluster: StandaloneProcess, client: Any
) -> None:
    admin = admin_of(cluster, "refusal")
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(5))
    producer.close()
    quota = {"limitSize": 10, "limitTime": -1, "policy": "producer_exception"}
    admin.set_policy("backlogQuota", quota)
    eventually(
        lambda: admin.to_topic("GET", "t", "stats")["backlogQuotaLimitSize"],
        lambda limit: limit == quota["limitSize"],
    )
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(admin.topic("t"))
    consume(consumer, range(5))
    eventually(lambda: admin.to_topic("GET", "t", "stats")["backlogSize"], lambda size: size < 10)
    publish(client.create_producer(admin.topic("t")), [5])


def test_a_backlog_that_may_be_lost_is_cut(cluster: StandaloneProcess, client: Any) -> None:
    admin = admin_of(cluster, "eviction")
    consumer = client.subscribe(admin.topic("t"), SUBSCRIPTION)
    consumer.close()
    producer = client.create_producer(admin.topic("t"), batching_enabled=False)
    publish(producer, range(30))
    half = admin.insides("t")["totalSize"] // 2
    quota = {"limitSize": half, "policy": "consumer_backlog_eviction"}
    admin.set_policy("backlogQuota", quota)
    stats = eventually(
        lambda: admin.to_topic("GET", "t", "stats")["subscriptions"][SUBSCRIPTION],
        lambda stats: stats["backlogSize"] < half,
    )
    assert 10 <= stats["msgBacklog"] < 15
    consume(client.subscribe(admin.topic("t"), SUBSCRIPTION), range(30 - stats["msgBacklog"], 30))
