"""When the oldest message was published that a subscription has left: read only where it is asked
for, for it takes an entry of each."""

from __future__ import annotations

from geminga_broker.admin.documents.topic_stats import TopicStats
from geminga_broker.managed_ledger.log_reader import LogReader
from geminga_broker.managed_ledger.payloads import entry_time_ms
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.topics.consuming.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic

# What upstream shows of a subscription that has left nothing.
NOTHING_LEFT = -1


async def add_earliest(stats: TopicStats, topic: Topic) -> None:
    """Complete ``stats``: of each subscription, and of the one that is furthest behind.

    Raises ``StorageUnavailable``.
    """
    marks: list[Position] = []
    stored = topic.part(PersistentSubscriptions).subscriptions
    for name, of_subscription in stats["subscriptions"].items():
        subscription = stored.get(name)
        if subscription is None or not subscription.backlog_entries:
            of_subscription["earliestMsgPublishTimeInBacklog"] = NOTHING_LEFT
            continue
        if subscription.cursor.is_durable:
            marks.append(subscription.mark_delete)
        of_subscription["earliestMsgPublishTimeInBacklog"] = await _published_after(
            topic.managed_ledger.reader, subscription.mark_delete
        )
    if marks:
        stats["earliestMsgPublishTimeInBacklogs"] = await _published_after(
            topic.managed_ledger.reader, min(marks)
        )


async def _published_after(reader: LogReader, mark: Position) -> int:
    """When the entry after ``mark`` was published, in Unix ms; -1 where that is gone by now."""
    position = reader.chain.readable_from(reader.chain.next_after(mark))
    if position > reader.readable_upto:
        return NOTHING_LEFT
    return entry_time_ms(await reader.read_one(position))
