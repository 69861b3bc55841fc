"""Proves with real processes that several brokers are one cluster: a topic has one owner, which any
broker names; a broker that dies leaves its topics to the others, and nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pulsar
import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.broker_group import BrokerGroup, BrokerProcess, broker_group
from tests.integration.waiting import eventually

from geminga import Client, connect

# Topics, so many that each broker has some, whatever their hashes are.
TOPICS = [f"persistent://public/default/topic-{number}" for number in range(12)]
SUBSCRIPTION = "readers"
LIVING = "/admin/v2/brokers/group"
# What the bundles of a killed broker may take beyond the end of its session.
TAKEOVER_S = 3.0
# How long a producer waits whose topic is moved to another broker.
PAUSE_S = 0.2
RECEIVE_TIMEOUT_MS = 60_000
# What is owned needs no ZooKeeper, but for a ledger that has to be replaced; machines are busy.
OWNED_PAUSE_S = 5.0
RECEIVE_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerGroup]:
    """Three brokers for tests that leave all of them alive."""
    with broker_group(tmp_path_factory.mktemp("shared"), brokers=3) as started:
        yield started


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerGroup]:
    with broker_group(tmp_path_factory.mktemp("group"), brokers=3) as started:
        yield started


def owned_by(group: BrokerGroup, broker: BrokerProcess) -> list[str]:
    return [topic for topic in TOPICS if group.owner(topic, asked=0) is broker]


def test_any_broker_names_the_one_owner_of_a_topic(shared: BrokerGroup) -> None:
    owners = [{shared.owner(topic, asked=asked).id for asked in range(3)} for topic in TOPICS]
    assert [len(each) for each in owners] == [1] * len(TOPICS)
    assert len(set().union(*owners)) > 1, "bundles are spread over the brokers"


def test_requests_about_a_whole_are_answered_by_any_broker(shared: BrokerGroup) -> None:
    path, name = "/admin/v2/persistent/public/default/parts", "persistent://public/default/parts"
    brokers = shared.brokers
    assert brokers[0].rest("PUT", f"{path}/partitions", 6)[0] == 204
    partitions = [f"{name}-partition-{number}" for number in range(6)]
    with client_of(shared.service_url) as client:
        client.subscribe(name, SUBSCRIPTION).close()
        publish_officially(client, name, range(60))
    assert len({shared.owner(partition).id for partition in partitions}) > 1
    for broker in brokers:
        status, stats = broker.rest("GET", f"{path}/partitioned-stats")
        assert (status, list(stats["partitions"])) == (200, partitions)
        assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 60
        assert broker.rest("GET", f"{path}/subscriptions") == (200, [SUBSCRIPTION])
        assert broker.rest("PUT", f"{path}/unload")[0] == 204
    assert brokers[1].rest("POST", "/admin/v2/namespaces/public/default/clearBacklog")[0] == 204
    _, stats = brokers[2].rest("GET", f"{path}/partitioned-stats?perPartition=false")
    assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 0
    assert brokers[1].rest("POST", f"{path}/partitions", 8)[0] == 204
    # ZooKeeper tells the other brokers, a moment later on a busy machine.
    ask_first = partial(brokers[0].rest, "GET", f"{path}/partitions")
    eventually(ask_first, lambda answer: answer[1]["partitions"] == 8)
    _, stats = brokers[0].rest("GET", f"{path}/partitioned-stats")
    assert [list(each["subscriptions"]) for each in stats["partitions"].values()] == [
        [SUBSCRIPTION]
    ] * 8
    assert brokers[2].rest("PUT", "/admin/v2/namespaces/public/default/unload")[0] == 204
    assert brokers[2].rest("DELETE", f"{path}/partitions?force=true")[0] == 204
    assert brokers[0].rest("GET", f"{path}/partitions")[0] == 404


def test_a_topic_that_is_not_persistent_is_known_at_any_broker(shared: BrokerGroup) -> None:
    path = "/admin/v2/non-persistent/public/default/volatile/partitions"
    with client_of(shared.service_url) as client:
        client.create_producer("non-persistent://public/default/volatile")
        found = [broker.rest("GET", path) for broker in shared.brokers]
    assert found == [(200, {"partitions": 0, "deleted": False})] * 3


def test_any_broker_lists_the_non_persistent_topics_of_all(shared: BrokerGroup) -> None:
    """They are kept in their owners' memory only, and a pattern is asked of any broker."""
    topics = [f"non-persistent://public/default/volatile-{number}" for number in range(12)]
    pattern = re.compile("public/default/volatile-.*")
    with client_of(shared.service_url) as client:
        producers = [client.create_producer(topic) for topic in topics]
        assert len({shared.owner(topic).id for topic in topics}) > 1
        for broker in shared.brokers:
            with client_of(broker.url) as asking:
                consumer = asking.subscribe(
                    pattern,
                    SUBSCRIPTION,
                    regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly,
                )
                for producer in producers:
                    producer.send(b"hello")
                messages = [consumer.receive(RECEIVE_TIMEOUT_MS) for _ in topics]
                assert sorted(each.topic_name() for each in messages) == sorted(topics)


def bundle_of(broker: BrokerProcess, topic: str) -> str:
    """``/admin/v2/namespaces/…/{bundle}``"""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    with urllib.request.urlopen(broker.web + path, timeout=RECEIVE_TIMEOUT_S) as answer:
        namespace = topic.removeprefix("persistent://").rpartition("/")[0]
        return f"/admin/v2/namespaces/{namespace}/{answer.read().decode()}"


def test_a_bundle_moves_to_a_chosen_broker_and_nothing_is_lost(shared: BrokerGroup) -> None:
    topic = "persistent://public/default/moved"
    with client_of(shared.service_url) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        pauses: list[float] = []
        sent = 0
        for turn in range(6):
            first = shared.owner(topic)
            target = shared.brokers[(shared.brokers.index(first) + 1) % 3]
            bundle = bundle_of(first, topic)
            asked = shared.brokers[turn % 3]
            moving = threading.Thread(
                target=asked.rest,
                args=("PUT", f"{bundle}/unload?destinationBroker={target.id}"),
            )
            moving.start()
            longest_s = 0.0
            while moving.is_alive() or shared.owner(topic) is first:
                began_s = time.monotonic()
                producer.send(b"%d" % sent)
                longest_s = max(longest_s, time.monotonic() - began_s)
                sent += 1
            moving.join()
            pauses.append(longest_s)
            assert shared.owner(topic) is target
        received = receive_officially(consumer, sent - 1)
        assert list(dict.fromkeys(received)) == list(range(sent))
    # Two of six: what a move takes by itself. Beside five other clusters most are longer.
    assert sorted(pauses)[1] < PAUSE_S, pauses


@pytest.mark.parametrize("unloaded", ["topic", "bundle", "namespace"])
def test_a_producer_pauses_briefly_while_its_topic_is_unloaded(
    shared: BrokerGroup, unloaded: str
) -> None:
    namespace = f"public/unload-of-{unloaded}"
    shared.brokers[0].rest("PUT", f"/admin/v2/namespaces/{namespace}", {"bundles": {}})
    topic = f"persistent://{namespace}/paused"
    pauses: list[float] = []
    sent = 0
    with client_of(shared.service_url) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        producer.send(b"%d" % sent)
        for turn in range(6):
            path = {
                "topic": f"/admin/v2/persistent/{namespace}/paused",
                "bundle": bundle_of(shared.brokers[0], topic),
                "namespace": f"/admin/v2/namespaces/{namespace}",
            }[unloaded]
            asked = shared.brokers[turn % 3]
            unloading = threading.Thread(target=asked.rest, args=("PUT", f"{path}/unload"))
            unloading.start()
            pauses.append(0.0)
            # The message that waits is sent before the unload has ended, or right behind it.
            is_ended = False
            while not is_ended:
                is_ended = not unloading.is_alive()
                sent += 1
                began_s = time.monotonic()
                producer.send(b"%d" % sent)
                pauses[-1] = max(pauses[-1], time.monotonic() - began_s)
            unloading.join()
        received = receive_officially(consumer, sent)
    assert list(dict.fromkeys(received)) == list(range(sent + 1))
    assert sorted(pauses)[1] < PAUSE_S, pauses


def test_a_bundle_is_split_three_ways_while_its_topics_go_on(shared: BrokerGroup) -> None:
    topics = [f"persistent://public/default/split-{number}" for number in range(8)]
    with client_of(shared.service_url) as client:
        consumer = client.subscribe(topics, SUBSCRIPTION)
        producers = [client.create_producer(topic) for topic in topics]
        owners = {topic: shared.owner(topic).id for topic in topics}
        namespace = "/admin/v2/namespaces/public/default"
        present = shared.brokers[0].rest("GET", f"{namespace}/bundles")[1]["numBundles"]
        for turn, algorithm in enumerate(
            (
                "range_equally_divide",
                "topic_count_equally_divide",
                "specified_positions_divide",
            )
        ):
            bundle = bundle_of(shared.brokers[0], topics[0])
            lower = int(bundle.rpartition("/")[2].partition("_")[0], 16)
            path = f"{bundle}/split?splitAlgorithmName={algorithm}"
            body = [lower + 1] if algorithm.startswith("specified") else None
            status, why = shared.brokers[turn].rest("PUT", path, body)
            if algorithm.startswith("topic_count") and status == 412:
                continue  # only one topic is left in that bundle
            assert (status, why) == (204, None)
            present += 1
            for broker in shared.brokers:
                assert broker.rest("GET", f"{namespace}/bundles")[1]["numBundles"] == present
            for producer in producers:
                producer.send(b"%d" % turn)
        assert {topic: shared.owner(topic).id for topic in topics} == owners
        # No client was told to leave: the producers are those that were there from the first.
        for topic in topics:
            path = f"/admin/v2/{topic.replace('://', '/')}/stats"
            stats = shared.brokers[0].rest("GET", path)[1]
            assert stats["msgInCounter"] >= 2
            assert len(stats["publishers"]) == 1
            consumer.receive(RECEIVE_TIMEOUT_MS)


def test_a_bundle_is_not_moved_to_a_broker_that_does_not_run(shared: BrokerGroup) -> None:
    broker = shared.brokers[0]
    bundle = bundle_of(broker, TOPICS[0])
    status, why = broker.rest("PUT", f"{bundle}/unload?destinationBroker=nowhere:1")
    assert (status, why) == (404, {"reason": "Broker nowhere:1 does not run"})


def publish_officially(client: pulsar.Client, topic: str, numbers: range) -> None:
    producer = client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
    for number in numbers:
        producer.send(b"%d" % number)
    producer.close()


async def publish_with_ours(client: Client, topic: str, numbers: range) -> None:
    async with await client.producer(topic) as producer:
        for number in numbers:
            await producer.send(b"%d" % number)


def receive_officially(consumer: pulsar.Consumer, last: int) -> list[int]:
    """Every message up to ``last``, as they come."""
    numbers: list[int] = []
    while not numbers or numbers[-1] < last:
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        numbers.append(int(message.data()))
        consumer.acknowledge(message)
    return numbers


def test_a_killed_brokers_topics_are_served_by_the_others_and_nothing_is_lost(
    group: BrokerGroup,
) -> None:
    with client_of(group.service_url) as official:
        consumers = {topic: official.subscribe(topic, SUBSCRIPTION) for topic in TOPICS}
        for topic in TOPICS:
            publish_officially(official, topic, range(10))
        victim = group.brokers[1]
        lost = owned_by(group, victim)
        assert lost, "it had some"
        producers = [
            official.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS) for topic in lost
        ]
        victim.kill()
        group.brokers.remove(victim)
        eventually(lambda: group.brokers[0].rest("GET", LIVING)[1], lambda ids: len(ids) == 2)
        ended_s = time.monotonic()  # the session of the killed broker is over
        for topic in lost:
            path = f"/admin/v2/{topic.replace('://', '/')}/stats"
            status, stats = group.owner(topic).rest("GET", path)
            assert (status, list(stats["subscriptions"])) == (200, [SUBSCRIPTION])
        assert time.monotonic() - ended_s < TAKEOVER_S
        # The clients, which knew nothing of it, go on where the topics are now.
        for producer in producers:
            producer.send(b"10")

        async def go_on_with_ours() -> None:
            async with connect(group.service_url) as client:
                for topic in lost:
                    await publish_with_ours(client, topic, range(11, 15))

        asyncio.run(go_on_with_ours())
        for topic in TOPICS:
            last = 14 if topic in lost else 9
            # Sent again by the client which had no receipt yet, a message may come twice.
            received = receive_officially(consumers[topic], last)
            assert list(dict.fromkeys(received)) == list(range(last + 1))


@pytest.mark.parametrize(
    "is_leader",
    [pytest.param(False, id="follower"), pytest.param(True, id="leader", marks=pytest.mark.full)],
)
def test_a_broker_that_is_told_to_end_hands_its_topics_on_first(
    group: BrokerGroup,
    is_leader: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    leader = group.brokers[0].rest("GET", "/admin/v2/brokers/leaderBroker")[1]["brokerId"]
    with client_of(group.service_url) as client:
        consumer = client.subscribe(TOPICS, SUBSCRIPTION)
        victim = next(
            each
            for each in group.brokers
            if (each.id == leader) is is_leader and owned_by(group, each)
        )
        producers = {
            topic: client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
            for topic in owned_by(group, victim)
        }
        pauses = dict.fromkeys(producers, 0.0)
        sent = 0
        victim.process.terminate()
        while victim.process.poll() is None or sent < 20:
            for topic, producer in producers.items():
                began_s = time.monotonic()
                producer.send(b"%d" % sent)
                pauses[topic] = max(pauses[topic], time.monotonic() - began_s)
            sent += 1
        received = {topic: set[int]() for topic in producers}
        while any(len(each) < sent for each in received.values()):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            received[message.topic_name()].add(int(message.data()))
            consumer.acknowledge(message)
    log = victim.log.read_text()
    assert log.count("bundle unloaded") == log.count("bundle acquired") > 0
    assert "bundle not handed on" not in log
    assert victim.process.returncode == 0
    assert sorted(pauses.values())[len(pauses) // 4] < PAUSE_S, pauses


AWAY_S = 60.0


@pytest.mark.full
@pytest.mark.parametrize("is_killed", [False, True], ids=["stands still", "killed"])
def test_topics_go_on_while_zookeeper_is_away_for_a_minute(
    group: BrokerGroup,
    is_killed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    with client_of(group.service_url) as client:
        consumer = client.subscribe(TOPICS, SUBSCRIPTION)
        producers = {
            topic: client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
            for topic in TOPICS
        }
        owners = {topic: group.owner(topic).id for topic in TOPICS}
        sent, slowest_s = 0, 0.0

        def publish_for(duration_s: float) -> None:
            nonlocal sent, slowest_s
            end_s = time.monotonic() + duration_s
            while (began_s := time.monotonic()) < end_s:
                for producer in producers.values():
                    producer.send(b"%d" % sent)
                sent += 1
                slowest_s = max(slowest_s, time.monotonic() - began_s)

        publish_for(1.0)
        zookeeper = group.zookeepers[-1].process
        # Our process, and its child, which is the server.
        children = Path(f"/proc/{zookeeper.pid}/task/{zookeeper.pid}/children").read_text()
        processes = [zookeeper.pid, *map(int, children.split())]
        assert len(processes) == 2
        for pid in reversed(processes):
            os.kill(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
        publish_for(AWAY_S)
        assert slowest_s < OWNED_PAUSE_S
        if is_killed:
            zookeeper.wait()
            group.start_zookeeper()
        else:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        # Sessions may have ended: brokers then give up what they own, and take it again.
        publish_for(10.0)
        for broker in group.brokers:
            eventually(partial(broker.rest, "GET", LIVING), lambda answer: len(answer[1]) == 3)
        for topic in (*TOPICS, "persistent://public/default/new"):
            places = {group.owner(topic, asked=each).id for each in range(3)}
            assert len(places) == 1, f"{topic}: {places}, before {owners.get(topic)}"
        publish_officially(client, "new", range(1))
        received = {topic: list[int]() for topic in TOPICS}
        while any(len(set(numbers)) < sent for numbers in received.values()):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            received[message.topic_name()].append(int(message.data()))
            consumer.acknowledge(message)
    for numbers in received.values():
        # Sent again by a client without receipt, a message may come twice.
        assert list(dict.fromkeys(numbers)) == list(range(sent))


def test_the_leader_is_followed_by_another(group: BrokerGroup) -> None:
    def leader(broker: BrokerProcess) -> str | None:
        status, found = broker.rest("GET", "/admin/v2/brokers/leaderBroker")
        return found["brokerId"] if status == 200 else None

    (first,) = {leader(broker) for broker in group.brokers}
    victim = next(broker for broker in group.brokers if broker.id == first)
    victim.kill()
    group.brokers.remove(victim)
    present = {broker.id for broker in group.brokers}
    eventually(
        lambda: {leader(broker) for broker in group.brokers},
        lambda named: len(named) == 1 and named <= present,
    )
