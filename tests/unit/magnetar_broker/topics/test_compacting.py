"""Proves compaction on a whole topic: who reads compacted sees the newest value of every key, in
order, then all that is newer; what was compacted outlives its log, and ends with the topic."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.magnetar_broker.clients_and_logs import NotedSession, consumer_of
from tests.unit.magnetar_broker.conftest import MemoryZooKeeper
from tests.unit.magnetar_broker.log.stand_ins import MemoryLedgers, logs_over

from magnetar_broker.compaction.errors import CompactionRunning
from magnetar_broker.compaction.report import CompactionStatus
from magnetar_broker.errors import NotAllowed
from magnetar_broker.log.options import LogOptions
from magnetar_broker.log.positions import EARLIEST, Position
from magnetar_broker.log.retention import FOR_EVER, KEEP_NOTHING
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.subscriptions.subscription_type import SubscriptionType
from magnetar_broker.topics.directory import TopicDirectory
from magnetar_broker.topics.persistent import PersistentTopic
from magnetar_broker.topics.producers import AccessMode, Producer
from magnetar_broker.topics.topic import SubscribeRequest
from magnetar_ledger import NotEnoughBookies
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.commands import parse_command
from magnetar_protocol.pulsar.payload import (
    encode_batch,
    encode_payload,
    metadata_bounds,
    parse_metadata,
    split_batch,
)
from magnetar_protocol.pulsar.topic_names import TopicName
from magnetar_protocol.records.compacted_ledger import COMPACTION_CURSOR
from magnetar_runtime.clock import SystemClock
from magnetar_simulation.loop import SimulatedLoop

NAME = TopicName.parse("persistent://t/n/topic")
READER = SubscribeRequest(
    "reader",
    SubscriptionType.EXCLUSIVE,
    is_durable=False,
    start_position=EARLIEST,
    reads_compacted=True,
)
DURABLE = SubscribeRequest(
    "sub", SubscriptionType.EXCLUSIVE, starts_at_earliest=True, reads_compacted=True
)

Keyed = tuple[str, bytes]
Seen = tuple[Position, int, str, bytes]
"""Where a message is, its batch index (-1: no batch), its key, its value."""


def single(key: str, value: bytes, *, time_ms: int = 1) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=time_ms,
        partition_key=key,
        uncompressed_size=len(value),
    )
    return encode_payload(metadata, value)


def batch(*messages: Keyed) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=len(messages),
    )
    body = encode_batch(
        (api.SingleMessageMetadata(partition_key=key, payload_size=0), value)
        for key, value in messages
    )
    return encode_payload(metadata, body)


class Rig:
    """A broker's topics over memory, to be unloaded and loaded."""

    def __init__(self, *, ledger_entries_max: int = 50_000) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.ledgers = MemoryLedgers()
        self.options = LogOptions(
            retry_first_s=0.05,
            retry_limit_s=5,
            ledger_entries_max=ledger_entries_max,
            ledger_age_min_s=0,
            retention_time_ms=FOR_EVER,
            retention_bytes=FOR_EVER,
        )
        self.loads = 0

    def directory(self) -> TopicDirectory:
        """The topics of a broker that begins now; an earlier one has lost its session."""
        self.loads += 1
        session = self.zookeeper.session(f"broker {self.loads}")
        logs = logs_over(session, self.ledgers, options=self.options)
        return TopicDirectory(logs, SystemClock(), owns=lambda _: True)


async def loaded(topics: TopicDirectory) -> PersistentTopic:
    topic = await topics.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def publish(topic: PersistentTopic, *payloads: bytes) -> None:
    producer = Producer(
        NotedSession(),
        1,
        f"p{topic.messages_in}",
        epoch=0,
        is_name_given=True,
        access_mode=AccessMode.SHARED,
        metadata={},
        connected_at_ms=0,
        on_closed=lambda _: None,
    )
    await topic.connect_producer(producer)
    for number, payload in enumerate(payloads):
        producer.append_all([(payload, 1, producer, number, 0)])
        await asyncio.sleep(0.1)
    assert not topic.managed_ledger.pending_count
    topic.producers.remove(producer)


async def compact(topic: PersistentTopic) -> None:
    await topic.compacting.trigger()
    await asyncio.sleep(1)
    assert topic.compacting.report.status is CompactionStatus.SUCCESS, (
        topic.compacting.report.last_error
    )


async def trim(topic: PersistentTopic) -> None:
    """Delete what nobody needs but compaction."""
    await topic.managed_ledger.roll_over()
    kept, topic.managed_ledger.retention = topic.managed_ledger.retention, KEEP_NOTHING
    await topic.managed_ledger.trim()
    topic.managed_ledger.retention = kept


async def attached(
    topic: PersistentTopic, session: NotedSession, request: SubscribeRequest = READER
) -> tuple[Subscription, Consumer]:
    subscription = await topic.subscribe(request)
    consumer = consumer_of(session, reads_compacted=request.reads_compacted)
    subscription.connected(consumer)
    subscription.flow(consumer, 1000)
    await asyncio.sleep(0.1)
    return subscription, consumer


def seen_by(session: NotedSession) -> list[Seen]:
    """All messages sent so far; those compacted out of a batch are not seen by an application."""
    stream = b"".join(session.out)
    found: list[Seen] = []
    start = 0
    while start < len(stream):
        end = start + 4 + int.from_bytes(stream[start : start + 4], "big")
        command, payload_start = parse_command(stream, start + 4, end)
        if command.type == api.BaseCommand.MESSAGE:
            place = command.message.message_id
            at = Position(place.ledgerId, place.entryId)
            found += messages_in(at, stream[payload_start:end])
        start = end
    return found


def messages_in(at: Position, payload: bytes) -> list[Seen]:
    metadata = parse_metadata(payload)
    body = payload[metadata_bounds(payload, 0, len(payload))[1] :]
    if not metadata.HasField("num_messages_in_batch"):
        return [(at, -1, metadata.partition_key, body)]
    return [
        (at, index, each.partition_key, value)
        for index, (each, value) in enumerate(split_batch(body, metadata.num_messages_in_batch))
        if not each.compacted_out
    ]


def values(seen: list[Seen]) -> list[Keyed]:
    return [(key, value) for _, _, key, value in seen]


async def read(topic: PersistentTopic, request: SubscribeRequest = READER) -> list[Seen]:
    """What a consumer is sent that comes now, then goes."""
    session = NotedSession()
    subscription, consumer = await attached(topic, session, request)
    await subscription.disconnect(consumer)
    await asyncio.sleep(0.001)
    return seen_by(session)


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
        subscription = await topic.subscribe(READER)
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
        subscription = await topic.subscribe(READER)
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
        subscription.acknowledge_entries(consumer, [(each[0], each[1]) for each in ids])
        assert subscription.cursor.backlog_entries == 0


async def test_unacknowledged_messages_come_again_and_others_do_not() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        await publish(topic, *(single(key, b"1") for key in "abcb"))
        await compact(topic)
        session = NotedSession()
        subscription, consumer = await attached(topic, session, DURABLE)
        first, *_ = seen_by(session)
        subscription.acknowledge_upto(consumer, first[0], (), None)
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
        compacted = topic.compacting.view.ledger
        assert compacted is not None
        logs = {span.ledger_id for span in topic.managed_ledger.chain.spans}
        cursor = topic.compacting.cursors()[0].store
        assert cursor is not None
        assert set(rig.ledgers.entries) == {*logs, compacted.ledger_id, cursor.ledger_id}
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
        assert topic.compacting.report.status is CompactionStatus.NOT_RUN
        await topic.compacting.trigger()
        with pytest.raises(CompactionRunning, match="already in progress"):
            await topic.compacting.trigger()
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
        await topic.compacting.trigger()
        await asyncio.sleep(1)
        report = topic.compacting.report
        assert (report.status, report.failed_total) == (CompactionStatus.ERROR, 1)
        assert report.last_error == str(NotEnoughBookies(1, 0))
        assert values(await read(topic)) == [("a", b"2"), ("a", b"3")]
        rig.ledgers.create_error = None
        await compact(topic)
        assert values(await read(topic)) == [("a", b"3")]


async def test_a_topic_with_a_threshold_is_compacted_by_itself() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        topic.compacting.options = replace(topic.compacting.options, threshold_bytes=500)
        await topics.check_compaction()
        assert [cursor.name for cursor in topic.compacting.cursors()] == [COMPACTION_CURSOR]
        await publish(topic, single("a", b"1"))
        await topics.check_compaction()
        assert topic.compacting.report.succeeded_total == 0
        await publish(topic, single("a", b"2" * 600))
        await topics.check_compaction()
        await asyncio.sleep(1)
        assert topic.compacting.report.succeeded_total == 1


async def test_only_one_consumer_reads_compacted_and_none_at_the_brokers_own_cursor() -> None:
    async with Rig().directory() as topics:
        topic = await loaded(topics)
        with pytest.raises(NotAllowed, match="only allowed on failover or exclusive"):
            await topic.subscribe(replace(DURABLE, type=SubscriptionType.SHARED))
        with pytest.raises(NotAllowed, match="the broker's own"):
            await topic.subscribe(replace(DURABLE, subscription=COMPACTION_CURSOR))


async def test_a_compacted_ledger_that_is_gone_leaves_the_log() -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"))
        await compact(topic)
        compacted = topic.compacting.view.ledger
        assert compacted is not None
        await rig.ledgers.delete(compacted.ledger_id)
        await topics.unload(NAME)
        topic = await loaded(topics)
        assert values(await read(topic)) == [("a", b"1"), ("a", b"2")]
        await publish(topic, single("b", b"1"))
        await compact(topic)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"1")]


# Random histories

MESSAGE = st.tuples(st.sampled_from("abcde"), st.sampled_from([b"", b"1", b"2", b"3"]))
STEP = st.one_of(
    MESSAGE,
    st.lists(MESSAGE, min_size=1, max_size=4),
    st.sampled_from(["compact", "trim", "reload"]),
)


def expected(history: list[tuple[Keyed, bool]]) -> list[Keyed]:
    """The dumb version: ``(message, was compacted)`` in order."""
    newest = {key: number for number, ((key, _), is_old) in enumerate(history) if is_old}
    return [
        message
        for number, (message, is_old) in enumerate(history)
        if not is_old or (newest[message[0]] == number and message[1])
    ]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, max_size=25))
def test_whatever_the_history_a_compacted_reader_sees_the_newest_of_every_key_and_all_newer(
    steps: list[Keyed | list[Keyed] | str],
) -> None:
    async def run() -> None:
        rig = Rig(ledger_entries_max=3)
        history: list[tuple[Keyed, bool]] = []
        async with rig.directory() as topics:
            topic = await loaded(topics)
            for step in steps:
                if step == "compact":
                    await compact(topic)
                    history = [(message, True) for message, _ in history]
                elif step == "trim" and topic.compacting.cursors():
                    await trim(topic)
                elif step == "reload":
                    await topics.unload(NAME)
                    topic = await loaded(topics)
                elif isinstance(step, tuple):
                    await publish(topic, single(*step))
                    history.append((step, False))
                elif isinstance(step, list):
                    await publish(topic, batch(*step))
                    history += [(each, False) for each in step]
            assert values(await read(topic)) == expected(history)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())


# Crashes


@pytest.mark.parametrize("step", range(24))
async def test_a_crash_at_any_step_leaves_one_of_the_two_and_no_ledger_behind(step: int) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"), single("b", b"1"))
        await compact(topic)
        await publish(topic, single("b", b"2"), single("b", b"3"))
    first = rig.directory()
    topic = await loaded(await first.__aenter__())
    await topic.compacting.trigger()
    for _ in range(step):
        await asyncio.sleep(0)
    # It dies: nothing it asks for from now on is heard.
    rig.zookeeper.session(f"broker {rig.loads}").is_expired = True
    for writer in rig.ledgers.writers:
        writer.detach()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        assert values(await read(topic)) in (
            [("a", b"2"), ("b", b"1"), ("b", b"2"), ("b", b"3")],
            [("a", b"2"), ("b", b"3")],
        )
        await compact(topic)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"3")]
    await first.__aexit__(None, None, None)
