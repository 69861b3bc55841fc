"""Proves that the check of three clusters fails: each kind of damage is planted once, in one
cluster, and found there; the clients are fakes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from random import Random

import pulsar
import pytest
from tests.torture.evidence.sent import MessagesLost, Sent, payload_of
from tests.torture.evidence.test_load import FakeClient
from tests.torture.ordeals.geo import (
    LOSS_EACH,
    NAMES,
    TOPICS,
    check_everywhere,
    everything,
    records,
    topic_of,
    turns,
)

MESSAGES = 12


class FakeCluster(FakeClient):
    """Holds messages of one topic at a time: that of the reader that was made last."""

    def __init__(self, topics: Mapping[str, list[bytes]]) -> None:
        super().__init__([])
        self.topics = topics

    def create_reader(self, topic: str, _start: object) -> FakeClient:
        return FakeClient(self.topics[topic])


def sent() -> list[Sent]:
    """What all clusters sent and were confirmed."""
    found = everything(records())
    for each in found:
        for number in range(MESSAGES):
            each.payload()
            each.answered(number, pulsar.Result.Ok)
    return found


def held(sents: list[Sent]) -> dict[str, FakeCluster]:
    """Clusters that hold it, producers taking turns."""
    topics = {
        topic_of(topic): [
            payload_of(each.producer, number)
            for number in range(MESSAGES)
            for each in sents
            if each.topic == topic_of(topic)
        ]
        for topic in range(TOPICS)
    }
    return {name: FakeCluster({t: list(held) for t, held in topics.items()}) for name in NAMES}


def test_what_all_have_once_and_in_order_is_right() -> None:
    sents = sent()
    contents = check_everywhere(held(sents), sents)
    assert {name: len(topics) for name, topics in contents.items()} == dict.fromkeys(NAMES, TOPICS)
    numbers = {content.messages for topics in contents.values() for content in topics.values()}
    assert numbers == {MESSAGES * len(sents) // TOPICS}


def test_every_producer_has_a_number_of_its_own_and_every_topic_producers_of_all_clusters() -> None:
    found = records()
    assert len({each.producer for each in everything(found)}) == len(everything(found))
    for of_cluster in found.values():
        assert {each.topic for each in of_cluster} == set(map(topic_of, range(TOPICS)))
        assert {each.is_batching for each in of_cluster} == {True, False}


@pytest.mark.parametrize("cluster", NAMES)
@pytest.mark.parametrize("place", [0, 17, -1])
def test_a_message_that_one_cluster_lacks_is_found(cluster: str, place: int) -> None:
    sents = sent()
    clusters = held(sents)
    del clusters[cluster].topics[topic_of(1)][place]
    with pytest.raises(MessagesLost, match=f"in {cluster}: .*geo-1"):
        check_everywhere(clusters, sents)


@pytest.mark.parametrize("cluster", NAMES)
@pytest.mark.parametrize("place", [0, 17, -1])
def test_a_message_that_one_cluster_has_twice_is_found(cluster: str, place: int) -> None:
    sents = sent()
    clusters = held(sents)
    messages = clusters[cluster].topics[topic_of(2)]
    messages.append(messages[place])
    with pytest.raises(MessagesLost, match=f"in {cluster}: .*geo-2"):
        check_everywhere(clusters, sents)


def test_a_message_that_overtook_another_of_its_producer_is_found() -> None:
    sents = sent()
    clusters = held(sents)
    messages = clusters["west"].topics[topic_of(0)]
    producers = len(sents) // TOPICS
    messages[0], messages[producers] = messages[producers], messages[0]
    with pytest.raises(MessagesLost, match=r"in west: .*came after"):
        check_everywhere(clusters, sents)


def test_a_message_that_is_in_no_cluster_is_found() -> None:
    sents = sent()
    clusters = held(sents)
    for each in clusters.values():
        each.topics[topic_of(0)].pop()
    with pytest.raises(MessagesLost, match="1 confirmed"):
        check_everywhere(clusters, sents)


@pytest.mark.parametrize("seed", range(20))
def test_the_second_strike_takes_a_whole_cluster_and_each_is_taken_as_often(seed: int) -> None:
    struck = list(islice(turns(Random(seed), NAMES), 2 * LOSS_EACH * len(NAMES)))
    assert [is_lost for _, is_lost in struck[:3]] == [False, True, False]
    assert sorted(name for name, is_lost in struck if is_lost) == sorted(2 * NAMES)
    assert {name for name, is_lost in struck if not is_lost} == set(NAMES)
