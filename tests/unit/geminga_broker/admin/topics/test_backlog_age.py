"""Proves when the oldest message left was published: of each subscription, and of the topic."""

from __future__ import annotations

from tests.unit.geminga_broker.clients_and_logs import publish

from geminga_broker.admin.facade import StatsQuery
from geminga_broker.admin.topics.backlog_age import add_earliest
from geminga_broker.admin.topics.stats import topic_stats
from geminga_broker.topics.consuming.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.directory import TopicDirectory
from geminga_broker.topics.topic import Topic
from geminga_protocol.pulsar.topic_names import TopicName


async def earliest(topic: Topic) -> tuple[int, dict[str, int]]:
    """What is told of the topic, and of its subscriptions."""
    stats = topic_stats(topic, StatsQuery(), "here:8080")
    await add_earliest(stats, topic)
    return stats["earliestMsgPublishTimeInBacklogs"], {
        name: each["earliestMsgPublishTimeInBacklog"]
        for name, each in stats["subscriptions"].items()
    }


async def test_the_oldest_left_is_told_of_each_and_of_the_slowest(topics: TopicDirectory) -> None:
    topic = await topics.get(TopicName.parse("t"), create=True)
    await topic.create_subscription("slow")
    await topic.create_subscription("fast")
    assert await earliest(topic) == (0, {"slow": -1, "fast": -1})
    await publish(topic, 1, age_s=3600)
    await publish(topic, 1, age_s=60)
    await topic.part(PersistentSubscriptions).named("fast").skipping.entries(1)
    of_topic, of_each = await earliest(topic)
    assert of_topic == of_each["slow"]
    assert 3500 < (of_each["fast"] - of_each["slow"]) / 1000 < 3600
    for name in of_each:
        await topic.part(PersistentSubscriptions).named(name).skipping.everything()
    assert await earliest(topic) == (0, {"slow": -1, "fast": -1})
