"""The list of the parts of a topic: a new feature is one more module, and one more line here.

The first part is the first to be told that a message is durable.
"""

from __future__ import annotations

from geminga_broker.topics.backlog import Backlog, MessageExpiry
from geminga_broker.topics.part import TopicPart, TopicServices
from geminga_broker.topics.producers.publish_path import PublishPath
from geminga_broker.topics.producers.topic_deduplication import TopicDeduplication
from geminga_broker.topics.subscriptions.non_persistent_subscriptions import (
    NonPersistentSubscriptions,
)
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_broker.topics.topic_replication import TopicReplication

# Of a persistent topic. A durable run and ``opened`` go from the first part to the last, ``apply``
# and ``delete`` from the last to the first. Receipts go out before the consumers are sent the run.
PERSISTENT: tuple[type[TopicPart], ...] = (
    # First: it confirms runs before the other parts see them, and follows new policies after them,
    # when ``TopicDeduplication`` knows what they say.
    PublishPath,
    # Behind the path of publishing, whose ``deduplication`` it sets while the topic is opened.
    TopicDeduplication,
    TopicCompaction,
    Backlog,
    MessageExpiry,
    # Takes the stored cursors that no part above or below claims.
    PersistentSubscriptions,
    # Last: consumers of this cluster get a run before it is sent to the others.
    TopicReplication,
)
# Of a non-persistent topic.
NON_PERSISTENT: tuple[type[TopicPart], ...] = (
    PublishPath,
    NonPersistentSubscriptions,
)


def maintenance_periods_s(services: TopicServices) -> dict[type[TopicPart], float]:
    """The kinds of parts that are maintained, with the seconds between two rounds of each."""
    # Each period is a setting of its own. Rounds of different kinds are not tied to each other:
    # several may run over the topics at the same time.
    config = services.config
    periods_s: dict[type[TopicPart], float] = {
        TopicDeduplication: config.publishing.deduplication_check_s,
        TopicCompaction: config.compaction.check_s,
        Backlog: config.backlog.backlog_quota_check_s,
        MessageExpiry: config.expiry.check_s,
    }
    # Without replication there is no change that could have failed and is to be retried.
    if services.replication is not None:
        periods_s[TopicReplication] = services.replication.config.retry_limit_s
    return periods_s
