"""Proves compaction on a whole topic: a reader of it sees the newest value of every key, in
order, then all that is newer; what was compacted outlives its log, and ends with the topic."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, maintain
from tests.unit.geminga_broker.compaction.compacted_topics import (
    DURABLE,
    NAME,
    READER,
    Rig,
    attached,
    batch,
    chunks,
    compact,
    loaded,
    publish,
    read,
    seen_by,
    single,
    trim,
    values,
)

from geminga_broker.compaction.errors import CompactionRunning
from geminga_broker.compaction.report import CompactionStatus
from geminga_broker.errors import NotAllowed
from geminga_broker.managed_ledger.positions import EARLIEST
from geminga_broker.policies.compaction import CompactionConfig
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_broker.topics.topic import Topic
from geminga_broker.topics.topic_compaction import COMPACTIONS_AT_ONCE_MAX, TopicCompaction
from geminga_ledger import NotEnoughBookies
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_protocol.records.topics.compacted_ledger import COMPACTION_CURSOR


async def test_only_the_newest_value_of_every_key_is_read_then_all_that_is_newer() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("b", b"1"), single("a", b"2"))
        await compact(topic)
        await publish(topic, single("b", b"2"), single("b", b"3"))
        assert values(await read(topic)) == [("b", b"1"), ("a", b"2"), ("b", b"2"), ("b", b"3")]
        plain = replace(READER, reads_compacted=False)
        assert len(await read(topic, plain)) == 5


async def test_an_empty_value_deletes_its_key_and_nothing_left_is_said_so() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b""))
        await compact(topic)
        assert await read(topic) == []
        subscription = await topic.part(PersistentSubscriptions).subscribe(READER)
        assert await subscription.last_message(reads_compacted=True) == (EARLIEST, -1)
        assert (await subscription.last_message())[0].entry_id == 1


async def test_a_batch_keeps_the_places_of_what_stays() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, batch(("a", b"1"), ("b", b"1"), ("c", b"1")), batch(("a", b"2")))
        await publish(topic, single("c", b"2"), batch(("d", b"1"), ("d", b"")))
        await compact(topic)
        assert [(index, key) for _, index, key, _ in await read(topic)] == [
            (1, "b"),
            (0, "a"),
            (-1, "c"),
        ]


async def test_the_last_message_is_the_last_that_is_left_of_its_batch() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, batch(("a", b"1"), ("b", b"1"), ("c", b"")))
        await compact(topic)
        subscription = await topic.part(PersistentSubscriptions).subscribe(READER)
        position, index = await subscription.last_message(reads_compacted=True)
        assert (position.entry_id, index) == (0, 1)


async def test_what_is_compacted_is_read_though_its_log_is_trimmed_and_after_a_reload() -> None:
    rig = Rig(ledger_entries_max=2)
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, *(single(key, b"1") for key in "abcdef"), single("a", b"2"))
        await compact(topic)
        await trim(topic)
        assert topic.managed_ledger.chain.total_entries == 0
        whole = [(key, b"1") for key in "bcdef"] + [("a", b"2")]
        assert values(await read(topic)) == whole
        await topics.unload(NAME)
        topic = await loaded(topics)
        assert values(await read(topic)) == whole
        middle = (await read(topic))[2][0]
        assert values(await read(topic, replace(READER, start_position=middle))) == whole[2:]


async def test_acknowledging_what_is_left_leaves_no_backlog() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, *(single("a", b"%d" % number) for number in range(9)))
        await publish(topic, single("b", b"1"), single("c", b"1"), single("c", b""))
        await compact(topic)
        session = NotedSession()
        subscription, consumer = await attached(topic, session, DURABLE)
        ids = [tuple(at) for at, *_ in seen_by(session)]
        assert len(ids) == 2
        subscription.acknowledger.entries(consumer, [(each[0], each[1]) for each in ids])
        assert subscription.cursor.backlog_entries == 0


async def test_unacknowledged_messages_come_again_and_others_do_not() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, *(single(key, b"1") for key in "abcb"))
        await compact(topic)
        session = NotedSession()
        subscription, consumer = await attached(topic, session, DURABLE)
        first, *_ = seen_by(session)
        subscription.acknowledger.upto(consumer, first[0], (), None)
        await subscription.disconnect(consumer)
        assert [key for _, _, key, _ in await read(topic, DURABLE)] == ["c", "b"]


async def test_a_seek_by_time_and_by_id_finds_its_place_in_what_is_compacted() -> None:
    async with Rig(ledger_entries_max=2).directory() as topics:
        topic = await loaded(topics)
        times = enumerate("abcdef", 1)
        await publish(topic, *(single(key, b"1", time_ms=10 * at) for at, key in times))
        await compact(topic)
        await trim(topic)
        session = NotedSession()
        subscription, _ = await attached(topic, session, DURABLE)
        third = seen_by(session)[2][0]
        await subscription.seek_time(35)
        assert [key for _, _, key, _ in await read(topic, DURABLE)] == ["d", "e", "f"]
        await subscription.seek(third)
        assert [key for _, _, key, _ in await read(topic, DURABLE)] == ["c", "d", "e", "f"]
        await subscription.seek(EARLIEST)
        assert len(await read(topic, DURABLE)) == 6


async def test_the_ledger_before_is_deleted_and_with_the_topic_the_last() -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        for number in range(3):
            await publish(topic, single("a", b"%d" % number))
            await compact(topic)
        compacted = topic.part(TopicCompaction).view.ledger
        assert compacted is not None
        factory = {span.ledger_id for span in topic.managed_ledger.chain.spans}
        cursor = topic.part(TopicCompaction).cursors()[0].store
        assert cursor is not None
        assert set(rig.ledgers.entries) == {*factory, compacted.ledger_id, cursor.ledger_id}
        await topics.delete(NAME, force=True)
        assert rig.ledgers.entries == {}


async def test_truncating_takes_what_is_compacted_too() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("b", b"1"))
        await compact(topic)
        await topic.truncate()
        assert await read(topic) == []
        await publish(topic, single("a", b"2"))
        await compact(topic)
        assert values(await read(topic)) == [("a", b"2")]


async def test_one_compaction_at_a_time_and_an_empty_topic_is_soon_done() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        assert topic.part(TopicCompaction).report.status is CompactionStatus.NOT_RUN
        await topic.part(TopicCompaction).trigger()
        with pytest.raises(CompactionRunning, match="already in progress"):
            await topic.part(TopicCompaction).trigger()
        await asyncio.sleep(1)
        await compact(topic)
        assert await read(topic) == []


async def test_a_compaction_that_fails_says_why_and_changes_nothing() -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"))
        await compact(topic)
        await publish(topic, single("a", b"3"))
        rig.ledgers.create_error = NotEnoughBookies(1, 0)
        await topic.part(TopicCompaction).trigger()
        await asyncio.sleep(1)
        report = topic.part(TopicCompaction).report
        assert (report.status, report.failed_total) == (CompactionStatus.ERROR, 1)
        assert report.last_error == str(NotEnoughBookies(1, 0))
        assert values(await read(topic)) == [("a", b"2"), ("a", b"3")]
        rig.ledgers.create_error = None
        await compact(topic)
        assert values(await read(topic)) == [("a", b"3")]


def compact_by_itself(topic: Topic, config: CompactionConfig) -> None:
    """Let these hold for ``topic``."""
    topic.apply(replace(topic.policies, compaction=config))


async def test_a_topic_with_a_threshold_is_compacted_by_itself() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        compact_by_itself(topic, CompactionConfig(threshold_bytes=500))
        await maintain(topics, TopicCompaction)
        assert [cursor.name for cursor in topic.part(TopicCompaction).cursors()] == [
            COMPACTION_CURSOR
        ]
        await publish(topic, single("a", b"1"))
        await maintain(topics, TopicCompaction)
        assert topic.part(TopicCompaction).report.succeeded_total == 0
        await publish(topic, single("a", b"2" * 600))
        await maintain(topics, TopicCompaction)
        await asyncio.sleep(1)
        assert topic.part(TopicCompaction).report.succeeded_total == 1


async def test_few_topics_are_compacted_at_once_and_the_others_later() -> None:
    async with Rig().directory() as topics:
        many = [
            await loaded(topics, TopicName.parse(f"persistent://t/n/topic-{number}"))
            for number in range(COMPACTIONS_AT_ONCE_MAX + 2)
        ]
        compactions = [topic.part(TopicCompaction) for topic in many]
        for topic in many:
            compact_by_itself(topic, CompactionConfig(threshold_bytes=5, read_bytes_per_s_max=100))
            await maintain(topics, TopicCompaction)
            await publish(topic, single("a", b"1"))
        await maintain(topics, TopicCompaction)
        assert sum(each.is_running for each in compactions) == COMPACTIONS_AT_ONCE_MAX
        await maintain(topics, TopicCompaction)
        assert sum(each.is_running for each in compactions) == COMPACTIONS_AT_ONCE_MAX
        await asyncio.sleep(60)
        await maintain(topics, TopicCompaction)
        await asyncio.sleep(60)
        assert [each.report.succeeded_total for each in compactions] == [1] * len(many)


async def test_a_message_in_chunks_is_read_whole_or_not_at_all() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        old, new = chunks("a", b"old", "1"), chunks("a", b"new", "2")
        await publish(topic, *old, *new, single("b", b"1"), *chunks("b", b"2", "3")[:2])
        await compact(topic)
        left = [("a", b"n"), ("a", b"e"), ("a", b"w"), ("b", b"1"), ("b", b"2"), ("b", b"")]
        assert values(await read(topic)) == left
        await publish(topic, chunks("b", b"2", "3")[2])
        await compact(topic)
        assert values(await read(topic)) == [*left[:3], ("b", b"2"), ("b", b""), ("b", b"")]


async def test_only_one_consumer_reads_compacted_and_none_at_the_brokers_own_cursor() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        with pytest.raises(NotAllowed, match="only allowed on failover or exclusive"):
            await topic.subscribing.subscribe(replace(DURABLE, type=SubscriptionType.SHARED))
        with pytest.raises(NotAllowed, match="the broker's own"):
            await topic.subscribing.subscribe(replace(DURABLE, subscription=COMPACTION_CURSOR))


async def test_a_compacted_ledger_that_is_gone_leaves_the_log() -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"))
        await compact(topic)
        compacted = topic.part(TopicCompaction).view.ledger
        assert compacted is not None
        await rig.ledgers.delete(compacted.ledger_id)
        await topics.unload(NAME)
        topic = await loaded(topics)
        assert values(await read(topic)) == [("a", b"1"), ("a", b"2")]
        await publish(topic, single("b", b"1"))
        await compact(topic)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"1")]
