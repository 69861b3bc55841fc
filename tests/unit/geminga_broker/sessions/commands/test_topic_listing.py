"""Proves what clients are told of the topics of a namespace, once and from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient, MemoryDiscovery

from geminga_broker.sessions.commands.topic_listing import WATCHERS_MAX
from geminga_broker.sessions.context import SessionContext
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.topics.topic_lists import topics_hash
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.coordination import Coordination

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]
PARENT = "/managed-ledgers/t/n/persistent"


@pytest.fixture
def discovery(context: SessionContext) -> MemoryDiscovery:
    """What the sessions ask."""
    assert isinstance(context.discovery, MemoryDiscovery)
    return context.discovery


# Asking once


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (api.CommandGetTopicsOfNamespace.PERSISTENT, ["persistent://t/n/a"]),
        (api.CommandGetTopicsOfNamespace.NON_PERSISTENT, ["non-persistent://t/n/b"]),
        (
            api.CommandGetTopicsOfNamespace.ALL,
            ["persistent://t/n/a", "non-persistent://t/n/b"],
        ),
    ],
)
async def test_the_topics_of_a_namespace_are_listed_by_their_kind(
    connect: Connect,
    settle: Settle,
    discovery: MemoryDiscovery,
    mode: api.CommandGetTopicsOfNamespace.Mode.ValueType,
    names: list[str],
) -> None:
    topics = ("persistent://t/n/a", "non-persistent://t/n/b", "persistent://t/other/c")
    discovery.topics = [TopicName.parse(each) for each in topics]
    client = connect()
    client.ask("getTopicsOfNamespace", namespace="t/n", mode=mode)
    await settle()
    (answer,) = client.all_of("getTopicsOfNamespaceResponse")
    assert sorted(answer.topics) == sorted(names)


async def test_other_brokers_are_needed_for_non_persistent_topics_alone(
    connect: Connect, settle: Settle, discovery: MemoryDiscovery
) -> None:
    """A list that lacks a broker's topics is not given: a client would leave those topics."""
    discovery.topics = [TopicName.parse("persistent://t/n/a")]
    discovery.is_every_broker_there = False
    client, modes = connect(), api.CommandGetTopicsOfNamespace
    client.ask("getTopicsOfNamespace", namespace="t/n", mode=modes.PERSISTENT)
    await settle()
    (answer,) = client.all_of("getTopicsOfNamespaceResponse")
    assert answer.topics == ["persistent://t/n/a"]
    for mode in (modes.NON_PERSISTENT, modes.ALL):
        client.ask("getTopicsOfNamespace", namespace="t/n", mode=mode)
    await settle()
    assert [each.error for each in client.all_of("error")] == [api.ServiceNotReady] * 2


@pytest.fixture
def some_topics(discovery: MemoryDiscovery) -> None:
    """Two that begin with an a, one of them a partition, one that does not, and a system's."""
    names = ("persistent://t/n/a-partition-0", "persistent://t/n/ab", "persistent://t/n/b")
    discovery.topics = [TopicName.parse(each) for each in (*names, "t/n/__change_events")]


async def test_topics_are_filtered_by_the_clients_pattern_and_summed_up(
    connect: Connect, settle: Settle, some_topics: None
) -> None:
    del some_topics
    client = connect()
    client.ask("getTopicsOfNamespace", namespace="t/n", topics_pattern="persistent://t/n/a.*")
    await settle()
    (answer,) = client.all_of("getTopicsOfNamespaceResponse")
    names = ["persistent://t/n/a-partition-0", "persistent://t/n/ab"]
    assert (answer.filtered, answer.changed, answer.topics) == (True, True, names)
    assert answer.topics_hash == topics_hash(names)


async def test_a_client_that_knows_the_list_is_not_sent_it_again(
    connect: Connect, settle: Settle, some_topics: None
) -> None:
    del some_topics
    client = connect()
    known = topics_hash(["persistent://t/n/b"])
    client.ask("getTopicsOfNamespace", namespace="t/n", topics_pattern="t/n/b", topics_hash=known)
    await settle()
    (answer,) = client.all_of("getTopicsOfNamespaceResponse")
    assert (answer.changed, list(answer.topics), answer.topics_hash) == (False, [], known)


@pytest.mark.parametrize("pattern", ["t/n/(?!a).*", "t/n/" + "a" * 50])
async def test_a_pattern_that_is_not_matched_here_is_left_to_the_client(
    connect: Connect, settle: Settle, some_topics: None, pattern: str
) -> None:
    del some_topics
    client = connect()
    client.ask("getTopicsOfNamespace", namespace="t/n", topics_pattern=pattern)
    await settle()
    (answer,) = client.all_of("getTopicsOfNamespaceResponse")
    assert (answer.filtered, len(answer.topics)) == (False, 3)


async def test_a_pattern_without_meaning_is_refused(connect: Connect, settle: Settle) -> None:
    client = connect()
    client.ask("getTopicsOfNamespace", namespace="t/n", topics_pattern="t/n/(")
    await settle()
    (answer,) = client.all_of("error")
    assert answer.error == api.MetadataError


# Watching


async def watching(
    client: FrameClient, settle: Settle, pattern: str = "persistent://t/n/a.*", **fields: object
) -> None:
    """Have the client watch."""
    client.ask("watchTopicList", watcher_id=7, namespace="t/n", topics_pattern=pattern, **fields)
    await settle()


async def test_a_watcher_is_told_what_is_there_and_what_comes_and_goes(
    connect: Connect, settle: Settle, coordination: Coordination
) -> None:
    await coordination.create(f"{PARENT}/a1", make_parents=True)
    client = connect()
    await watching(client, settle)
    (success,) = client.all_of("watchTopicListSuccess")
    assert (success.watcher_id, success.topic) == (7, ["persistent://t/n/a1"])
    assert success.topics_hash == topics_hash(success.topic)
    await coordination.create(f"{PARENT}/a2")
    await coordination.create(f"{PARENT}/b")
    await settle()
    await coordination.delete(f"{PARENT}/a1")
    await settle()
    updates = [
        (list(each.new_topics), list(each.deleted_topics), each.topics_hash)
        for each in client.all_of("watchTopicUpdate")
    ]
    a1, a2 = "persistent://t/n/a1", "persistent://t/n/a2"
    assert updates == [([a2], [], topics_hash([a1, a2])), ([], [a1], topics_hash([a2]))]


async def test_a_namespace_whose_first_topic_is_still_to_come_is_watched(
    connect: Connect, settle: Settle, coordination: Coordination
) -> None:
    client = connect()
    await watching(client, settle, topics_hash=topics_hash([]))
    assert [list(each.topic) for each in client.all_of("watchTopicListSuccess")] == [[]]
    await coordination.create(f"{PARENT}/a", make_parents=True)
    await settle()
    assert [each.new_topics for each in client.all_of("watchTopicUpdate")] == [
        ["persistent://t/n/a"]
    ]


async def test_many_watchers_of_a_namespace_are_one_in_zookeeper(
    connect: Connect, settle: Settle, context: SessionContext, requests: list[str]
) -> None:
    clients = [connect() for _ in range(5)]
    for client in clients:
        await watching(client, settle)
    assert requests.count(f"children {PARENT}") == 1
    for client in clients[1:]:
        client.lose()
    assert len(context.topic_lists.lists) == 1
    clients[0].ask("watchTopicListClose", watcher_id=7)
    await settle()
    assert len(context.topic_lists.lists) == 0


async def test_a_closed_watcher_is_told_nothing(
    connect: Connect, settle: Settle, coordination: Coordination
) -> None:
    client = connect()
    await watching(client, settle)
    client.ask("watchTopicListClose", watcher_id=7)
    await coordination.create(f"{PARENT}/a", make_parents=True)
    await settle()
    assert client.heard == ["watchTopicListSuccess", "success"]


async def test_a_watcher_may_be_closed_before_its_opening_was_answered(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    client = connect()
    client.ask("watchTopicList", watcher_id=7, namespace="t/n", topics_pattern="a")
    client.ask("watchTopicListClose", watcher_id=7)
    await settle()
    assert client.heard == ["watchTopicListSuccess", "success"]
    assert len(context.topic_lists.lists) == 0


async def test_a_second_watcher_of_an_id_is_the_first(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    client = connect()
    for _ in range(2):
        await watching(client, settle)
    assert client.heard == ["watchTopicListSuccess"] * 2
    client.lose()
    assert len(context.topic_lists.lists) == 0


@pytest.mark.parametrize(
    ("pattern", "error", "text"),
    [
        ("a" * 51, api.NotAllowedError, "Pattern longer than maximum: 50"),
        ("(?!a)", api.NotAllowedError, "match it yourself"),
        ("(", api.InvalidTopicName, "Invalid topics pattern: it has a ( without a )"),
        ("ftp://a", api.InvalidTopicName, "Does not support topic domain: ftp"),
    ],
)
async def test_a_pattern_that_is_not_matched_here_is_not_watched(
    connect: Connect, settle: Settle, pattern: str, error: int, text: str
) -> None:
    client = connect()
    await watching(client, settle, pattern)
    (answer,) = client.all_of("error")
    assert answer.error == error
    assert text in answer.message


async def test_where_patterns_are_not_matched_watchers_are_refused(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    context.config = replace(context.config, matches_patterns=False)
    client = connect()
    await watching(client, settle)
    (answer,) = client.all_of("error")
    assert "Evaluating subscription patterns is disabled." in answer.message


async def test_a_connection_has_so_many_watchers_at_most(connect: Connect, settle: Settle) -> None:
    client = connect()
    for number in range(WATCHERS_MAX + 1):
        client.ask("watchTopicList", watcher_id=number, namespace="t/n", topics_pattern="a")
    await settle()
    (answer,) = client.all_of("error")
    assert answer.error == api.TooManyRequests


async def test_a_client_that_goes_while_its_watcher_opens_leaves_nothing(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    client = connect()
    client.ask("watchTopicList", watcher_id=7, namespace="t/n", topics_pattern="a")
    await asyncio.sleep(0)
    client.lose()
    await settle()
    assert len(context.topic_lists.lists) == 0
