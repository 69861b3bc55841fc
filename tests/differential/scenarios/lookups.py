"""Where topics are: LOOKUP, PARTITIONED_METADATA, and the same over REST."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import Client, World

from geminga_protocol.pulsar import api_pb2 as api

ODD_NAMES = (
    "t",
    "persistent://",
    "persistent://public",
    "persistent://public/default",
    "public/default/a/b",
    "ftp://public/default/t",
    "persistent://no-such-tenant/ns/t",
    "persistent://public/no-such-namespace/t",
    "",
)


NOT_A_NAME = "invalid name '{}': it is not of the form domain://tenant/namespace/topic"
SHORT = "it should be in the format of <tenant>/<namespace>/<topic> or <topic>"
SAYS_MORE = "it says what was wrong with which name"
ODD_TEXTS = [
    *(
        Wanted(
            f"Invalid topic name: Invalid topic name: {name}", NOT_A_NAME.format(name), SAYS_MORE
        )
        for name in ("persistent://", "persistent://public", "persistent://public/default")
    ),
    Wanted(
        f"Invalid topic name: Invalid short topic name 'public/default/a/b', {SHORT}",
        "invalid name 'public/default/a/b': it is neither topic nor tenant/namespace/topic",
        SAYS_MORE,
    ),
    Wanted(
        "Invalid topic name: Invalid topic domain: 'ftp'",
        "invalid name 'ftp://public/default/t': its domain is none of persistent, non-persistent",
        SAYS_MORE,
    ),
    Wanted(
        f"Invalid topic name: Invalid short topic name '', {SHORT}",
        "invalid name 'persistent://public/default/': the topic's own part is empty",
        SAYS_MORE,
    ),
]


def named(scenario_name: str, *topics: str) -> list[Wanted]:
    """Upstream says that a topic was not found, ours which one."""
    failed = {"error": "TopicNotFound", "response": "Failed"}
    return [
        Wanted(
            (
                ["a", "> PARTITIONED_METADATA", asked],
                ["a", "< PARTITIONED_METADATA_RESPONSE", failed],
            ),
            (
                ["a", "> PARTITIONED_METADATA", asked],
                [
                    "a",
                    "< PARTITIONED_METADATA_RESPONSE",
                    failed | {"message": f"Topic {asked['topic']} not found"},
                ],
            ),
            SAYS_MORE,
        )
        for topic in topics
        for asked in [
            {
                "metadata_auto_creation_enabled": False,
                "topic": f"persistent://diff/{scenario_name}/{topic}",
            }
        ]
    ]


async def partitions(client: Client, topic: str, *, create: bool) -> None:
    await client.ask(
        api.CommandPartitionedTopicMetadata(
            topic=topic, request_id=0, metadata_auto_creation_enabled=create
        )
    )


@scenario()
async def lookup_of_topics_that_exist_and_do_not(world: World) -> None:
    client = await world.client()
    await client.lookup("never-made")
    await world.filled(["x"])
    await client.lookup("t")
    await client.lookup("t", authoritative=True)
    await client.lookup(f"non-persistent://{world.namespace}/t")
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}")


@scenario(wanted=ODD_TEXTS)
async def lookup_of_odd_names(world: World) -> None:
    client = await world.client()
    for name in ODD_NAMES:
        await client.ask(api.CommandLookupTopic(topic=name, request_id=0))


@scenario(wanted=ODD_TEXTS)
async def partitioned_metadata_of_odd_names(world: World) -> None:
    client = await world.client()
    for name in ODD_NAMES:
        await partitions(client, name, create=True)


@scenario(wanted=named("partitioned-metadata-with-and-without-creation", "absent", "made"))
async def partitioned_metadata_with_and_without_creation(world: World) -> None:
    client = await world.client()
    await partitions(client, world.topic("absent"), create=False)
    await partitions(client, world.topic("made"), create=True)
    await partitions(client, world.topic("made"), create=False)
    await world.filled(["x"])
    await partitions(client, world.topic("t"), create=False)
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}")


@scenario(wanted=named("partitioned-metadata-of-partitioned-topics", "p-partition-x"))
async def partitioned_metadata_of_partitioned_topics(world: World) -> None:
    client = await world.client()
    await world.rest("PUT", world.topic_path("p", "/partitions"), 3)
    await partitions(client, world.topic("p"), create=True)
    await partitions(client, world.topic("p-partition-1"), create=True)
    await partitions(client, world.topic("p-partition-7"), create=True)
    await partitions(client, world.topic("p-partition-x"), create=False)
    await client.lookup("p")
    await client.lookup("p-partition-2")
    await world.rest("POST", world.topic_path("p", "/partitions"), 5)
    await partitions(client, world.topic("p"), create=True)


@scenario()
async def a_producer_on_a_partitioned_topic_itself(world: World) -> None:
    client = await world.client()
    await world.rest("PUT", world.topic_path("p", "/partitions"), 2)
    await client.lookup("p")
    await client.producer(1, "p")
    await client.lookup("p-partition-5")
    await client.producer(2, "p-partition-5")
    await client.subscribe(1, topic="p-partition-6")


@scenario()
async def partitions_over_rest(world: World) -> None:
    path = world.topic_path("p", "/partitions")
    await world.rest("GET", path)
    await world.rest("GET", f"{path}?checkAllowAutoCreation=true")
    for count in (0, -1, 3, 3):
        await world.rest("PUT", path, count)
    await world.rest("GET", path)
    for count in (2, 3, 4):
        await world.rest("POST", path, count)
    await world.rest("GET", path)
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}/partitioned")
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}", pick=sorted)
    await world.rest("DELETE", path)
    await world.rest("DELETE", path)
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}", pick=sorted)
    await world.rest("POST", world.topic_path("absent", "/partitions"), 4)


@scenario()
async def topics_over_rest(world: World) -> None:
    await world.rest("PUT", world.topic_path("t"))
    await world.rest("PUT", world.topic_path("t"))
    await world.rest("PUT", world.topic_path("t", "/partitions"), 2)
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}")
    await world.rest("DELETE", world.topic_path("t"))
    await world.rest("DELETE", world.topic_path("t"))
    await world.rest("GET", world.topic_path("t", "/stats"))
    await world.rest("GET", world.topic_path("t", "/internalStats"))
    await world.rest("PUT", f"/admin/v2/persistent/{world.namespace}-absent/t")
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}-absent")
    await world.rest("PUT", "/admin/v2/persistent/no-such-tenant/ns/t")


ADDRESSES = {
    "brokerUrl": "pulsar://ADDRESS",
    "brokerUrlSsl": "",
    "httpUrl": "http://ADDRESS",
    "nativeUrl": "pulsar://ADDRESS",
}
ABSENT_BUNDLE = "GET /lookup/v2/topic/persistent/diff/lookup-over-rest-absent/t/bundle"


@scenario(
    wanted=[
        Wanted(
            ADDRESSES,
            ADDRESSES | {"brokerUrlTls": "", "httpUrlTls": ""},
            "one client or another misses each address that is left out",
        ),
        Wanted(
            ["rest", ABSENT_BUNDLE, 200, "0x00000000_0xffffffff"],
            ["rest", ABSENT_BUNDLE, 404, {"reason": "Namespace not found"}],
            "a namespace that is not there has no bundles",
        ),
    ]
)
async def lookup_over_rest(world: World) -> None:
    await world.filled(["x"])
    where = f"/lookup/v2/topic/persistent/{world.namespace}"
    await world.rest("GET", f"{where}/t")
    await world.rest("GET", f"{where}/never-made")
    await world.rest("GET", f"{where}-absent/t")
    await world.rest("GET", f"{where}-absent/t/bundle")


def not_found(scenario_name: str) -> list[Wanted]:
    """Upstream has a sentence for producers, another for consumers; ours is the one of REST."""
    topic = f"persistent://diff/{scenario_name}/absent"
    return [
        Wanted(
            {"error": "TopicNotFound", "message": theirs},
            {"error": "TopicNotFound", "message": f"Topic {topic} not found"},
            "one sentence for it everywhere",
        )
        for theirs in (f"Topic not found {topic}", f"Topic {topic} does not exist")
    ]


@scenario(
    wanted=[
        *not_found("topics-without-automatic-creation"),
        Wanted(
            {"error": "TopicNotFound", "response": "Failed"},
            {
                "error": "TopicNotFound",
                "response": "Failed",
                "message": "Topic persistent://diff/topics-without-automatic-creation/absent "
                "not found",
            },
            SAYS_MORE,
        ),
    ]
)
async def topics_without_automatic_creation(world: World) -> None:
    path = world.namespace_path("/autoTopicCreation")
    await world.rest("POST", path, {"allowAutoTopicCreation": False})
    client = await world.client()
    await client.lookup("absent")
    await partitions(client, world.topic("absent"), create=True)
    await client.producer(1, "absent")
    await client.subscribe(1, topic="absent")
    await world.rest("PUT", world.topic_path("t"))
    await partitions(client, world.topic("t"), create=True)
    await client.producer(2, "t")
    await client.subscribe(2, topic="t")


LIST = "GET /admin/v2/persistent/diff/partitioned-topics-by-automatic-creation"
PARTITIONS = [
    f"persistent://diff/partitioned-topics-by-automatic-creation/p-partition-{index}"
    for index in range(3)
]


@scenario(
    wanted=[
        *named("partitioned-topics-by-automatic-creation", "p"),
        Wanted(
            ["rest", LIST, 200, []],
            ["rest", LIST, 200, PARTITIONS],
            "a topic is made together with its partitions, so that there are all or none",
        ),
    ]
)
async def partitioned_topics_by_automatic_creation(world: World) -> None:
    policy = {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    }
    await world.rest("POST", world.namespace_path("/autoTopicCreation"), policy)
    client = await world.client()
    await partitions(client, world.topic("p"), create=False)
    await partitions(client, world.topic("p"), create=True)
    await world.rest("GET", world.topic_path("p", "/partitions"))
    await world.rest("GET", f"/admin/v2/persistent/{world.namespace}", pick=sorted)


@scenario()
async def subscriptions_without_automatic_creation(world: World) -> None:
    path = world.namespace_path("/autoSubscriptionCreation")
    await world.rest("POST", path, {"allowAutoSubscriptionCreation": False})
    await world.filled(["x"])
    client = await world.client()
    await client.subscribe(1, "absent")
    await client.subscribe(2, "reader", durable=False)
    await world.rest("PUT", world.topic_path("t", "/subscription/made"))
    await client.subscribe(3, "made")


@scenario(wanted=not_found("subscribing-without-making-the-topic")[1:])
async def subscribing_without_making_the_topic(world: World) -> None:
    client = await world.client()
    await client.lookup("absent")
    await client.subscribe(1, topic="absent", force_topic_creation=False)
    await client.subscribe(1, topic="absent", force_topic_creation=True)


@scenario()
async def using_a_topic_without_a_lookup(world: World) -> None:
    await world.rest("PUT", world.namespace_path("/unload"))
    client = await world.client()
    await client.producer()
    await client.subscribe()
    await client.lookup()
    await client.producer()
    await client.subscribe()
