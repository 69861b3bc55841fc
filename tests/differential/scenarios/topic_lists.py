"""Which topics a namespace has: GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST."""

from __future__ import annotations

from typing import Any

from tests.differential.plain import Json
from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

Mode = api.CommandGetTopicsOfNamespace.Mode


async def ask(
    world: World, client: Client, namespace: str = "", **fields: Any
) -> api.CommandGetTopicsOfNamespaceResponse:
    answer = await client.ask(
        api.CommandGetTopicsOfNamespace(
            namespace=namespace or world.namespace, request_id=0, **fields
        )
    )
    assert answer is not None
    return answer.getTopicsOfNamespaceResponse


async def make_topics(world: World) -> None:
    with world.transcript.quiet():
        for name in ("one", "two", "other"):
            await world.rest("PUT", world.topic_path(name))
        await world.rest("PUT", world.topic_path("parts", "/partitions"), 2)


@scenario()
async def topics_of_a_namespace(world: World) -> None:
    await make_topics(world)
    client = await world.client()
    await client.subscribe(1, topic=f"non-persistent://{world.namespace}/fleeting")
    for mode in (Mode.PERSISTENT, Mode.NON_PERSISTENT, Mode.ALL):
        await ask(world, client, mode=mode)


SAYS_MORE = "it says what was wrong, in our words"


@scenario(
    wanted=[
        Wanted(
            {
                "error": "MetadataError",
                "message": "Unclosed group near index 24\ndiff/topics-by-pattern/(",
            },
            {
                "error": "MetadataError",
                "message": "not a pattern of topic names: it has a ( without a )",
            },
            SAYS_MORE,
        )
    ]
)
async def topics_by_pattern(world: World) -> None:
    await make_topics(world)
    client = await world.client()
    for pattern in ("o.*", "one", ".*parts.*", "(", "nothing", "o{1}ne"):
        await ask(world, client, topics_pattern=world.topic(pattern), mode=Mode.PERSISTENT)
    await ask(world, client, topics_pattern=f"{world.namespace}/t.*", mode=Mode.PERSISTENT)


@scenario()
async def topics_that_did_not_change(world: World) -> None:
    await make_topics(world)
    client = await world.client()
    pattern = world.topic("o.*")
    first = await ask(world, client, topics_pattern=pattern, mode=Mode.PERSISTENT)
    known: dict[str, Any] = {
        "topics_pattern": pattern,
        "topics_hash": first.topics_hash,
        "mode": Mode.PERSISTENT,
    }
    await ask(world, client, **known)
    await world.rest("PUT", world.topic_path("three"))
    await ask(world, client, **known)
    await world.rest("PUT", world.topic_path("only"))
    await ask(world, client, **known)
    everything = await ask(world, client, mode=Mode.PERSISTENT)
    await ask(world, client, topics_hash=everything.topics_hash, mode=Mode.PERSISTENT)


def no_namespace(name: str) -> Json:
    return [
        "a",
        "< ERROR",
        {
            "error": "InvalidTopicName",
            "message": f"invalid name '{name}': a namespace is written tenant/namespace",
        },
    ]


@scenario(
    wanted=[
        Wanted(["a", theirs], no_namespace(name), "no name ends a connection")
        for name, theirs in (("nonsense", "< end of connection"), ("a/b/c/d", "< nothing"))
    ]
)
async def topics_of_namespaces_that_are_not_there(world: World) -> None:
    client = await world.client()
    await ask(world, client)
    for namespace in (f"{world.namespace}-absent", "no-such-tenant/ns", "nonsense", "a/b/c/d"):
        await client.ask(api.CommandGetTopicsOfNamespace(namespace=namespace, request_id=0))


async def watch(
    world: World, client: Client, watcher_id: int, pattern: str, **fields: Any
) -> api.BaseCommand | None:
    return await client.ask(
        api.CommandWatchTopicList(
            request_id=0,
            watcher_id=watcher_id,
            namespace=world.namespace,
            topics_pattern=world.topic(pattern),
            **fields,
        )
    )


@scenario()
async def a_watched_list_of_topics(world: World) -> None:
    await make_topics(world)
    client = await world.client(feature_flags=api.FeatureFlags(supports_topic_watchers=True))
    await watch(world, client, 1, "o.*")
    await world.rest("PUT", world.topic_path("only"))
    await client.take(1)
    await world.rest("PUT", world.topic_path("unwatched"))
    await client.silence()
    await world.rest("DELETE", world.topic_path("other"))
    await client.take(1)
    await world.rest("PUT", world.topic_path("often", "/partitions"), 1)
    await client.take(1)
    await client.ask(api.CommandWatchTopicListClose(request_id=0, watcher_id=1))
    await world.rest("PUT", world.topic_path("once"))
    await client.silence()


@scenario(
    wanted=[
        Wanted(
            {
                "error": "InvalidTopicName",
                "message": "Invalid topics pattern: Unclosed group near index 21\n"
                "diff/topic-watchers/(",
            },
            {
                "error": "InvalidTopicName",
                "message": "Invalid topics pattern: it has a ( without a )",
            },
            SAYS_MORE,
        )
    ]
)
async def topic_watchers(world: World) -> None:
    await make_topics(world)
    client = await world.client(feature_flags=api.FeatureFlags(supports_topic_watchers=True))
    first = await watch(world, client, 1, "o.*")
    assert first is not None
    known = first.watchTopicListSuccess.topics_hash
    await watch(world, client, 2, "o.*", topics_hash=known)
    await watch(world, client, 2, "t.*")
    await watch(world, client, 3, "(")
    await client.ask(api.CommandWatchTopicListClose(request_id=0, watcher_id=9))
    await client.ask(
        api.CommandWatchTopicList(
            request_id=0, watcher_id=4, namespace="no-such-tenant/ns", topics_pattern="x"
        )
    )


@scenario()
async def a_long_pattern(world: World) -> None:
    await make_topics(world)
    client = await world.client(feature_flags=api.FeatureFlags(supports_topic_watchers=True))
    pattern = "o.*" + "|a-pattern-of-more-than-fifty-letters" * 2
    await watch(world, client, 1, pattern)
    await ask(world, client, topics_pattern=world.topic(pattern), mode=Mode.PERSISTENT)
