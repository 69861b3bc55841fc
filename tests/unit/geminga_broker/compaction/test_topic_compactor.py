"""Proves that compaction keeps its promise whatever a topic went through, wherever it crashed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of
from tests.unit.geminga_broker.compaction.compacted_topics import (
    NAME,
    Keyed,
    Rig,
    batch,
    compact,
    loaded,
    publish,
    read,
    single,
    trim,
    values,
)

from geminga_broker.managed_ledger.ledger_chain.retention import KEEP_NOTHING
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_simulation.event_loop.loop import SimulatedLoop

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
                elif step == "trim" and topic.part(TopicCompaction).cursors():
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
    await topic.part(TopicCompaction).trigger()
    for _ in range(step):
        await asyncio.sleep(0)
    rig.die()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        assert values(await read(topic)) in (
            [("a", b"2"), ("b", b"1"), ("b", b"2"), ("b", b"3")],
            [("a", b"2"), ("b", b"3")],
        )
        await compact(topic)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"3")]
    await first.__aexit__(None, None, None)


@pytest.mark.parametrize("step", range(40))
async def test_a_log_that_is_trimmed_while_it_is_compacted_loses_nothing(step: int) -> None:
    """Neither to readers meanwhile, nor to the next owner after a crash."""
    rig = Rig(ledger_entries_max=2)
    first = rig.directory()
    topic = await loaded(await first.__aenter__())
    await publish(topic, single("a", b"1"), single("b", b"1"))
    await compact(topic)
    await publish(topic, single("b", b"2"), single("c", b"1"))
    last = topic.managed_ledger.chain.last_confirmed
    await topic.managed_ledger.roll_over()
    topic.managed_ledger.trimmer.retention = KEEP_NOTHING
    await topic.part(TopicCompaction).trigger()
    for _ in range(step):
        await asyncio.sleep(0)
    rig.ledgers.is_prompt = False  # bookies store what comes from now on, and do not say so
    topic.managed_ledger.trimmer.trim_soon()
    await asyncio.sleep(1)
    ledger, chain = topic.part(TopicCompaction).view.ledger, topic.managed_ledger.chain
    assert ledger is not None
    horizon = ledger.horizon
    assert horizon == last or chain.entries_between(horizon, last) == 2, "the log has the rest"
    rig.die()
    rig.ledgers.is_prompt = True
    async with rig.directory() as topics:
        seen = values(await read(await loaded(topics)))
        assert seen[-3:] in (
            [("b", b"1"), ("b", b"2"), ("c", b"1")],
            [("a", b"1"), ("b", b"2"), ("c", b"1")],
        )
    await first.__aexit__(None, None, None)


async def test_what_is_published_while_a_topic_is_compacted_is_read_from_the_log() -> None:
    """Where a compaction ends is decided before it reads: whatever comes later is not in it."""
    rig = Rig(ledger_entries_max=5)
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"), single("b", b"1"))
        producer = producer_of(NotedSession(), "meanwhile")
        await topic.publishing.connect(producer)
        await topic.part(TopicCompaction).trigger()
        meanwhile: list[Keyed] = []
        while topic.part(TopicCompaction).is_running:
            meanwhile.append((f"k{len(meanwhile)}", b"1"))
            producer.append_all([(single(*meanwhile[-1]), 1, producer, len(meanwhile), 0)])
            await asyncio.sleep(0)
        assert len(meanwhile) > 10, "at every step of the compaction"
        await asyncio.sleep(1)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"1"), *meanwhile]
        await compact(topic)
        await trim(topic)
        assert values(await read(topic)) == [("a", b"2"), ("b", b"1"), *meanwhile]


@pytest.mark.parametrize("step", range(40))
async def test_a_topic_that_is_truncated_while_it_is_compacted_leaves_no_compacted_ledger(
    step: int,
) -> None:
    rig = Rig()
    async with rig.directory() as topics:
        topic = await loaded(topics)
        await publish(topic, single("a", b"1"), single("a", b"2"), single("b", b"1"))
        await compact(topic)
        await publish(topic, single("b", b"2"))
        await topic.part(TopicCompaction).trigger()
        for _ in range(step):
            await asyncio.sleep(0)
        await topic.truncate()
        await asyncio.sleep(1)
        assert values(await read(topic)) == []
        (cursor,) = topic.part(TopicCompaction).cursors()
        assert cursor.store is not None
        ours = {
            cursor.store.ledger_id,
            *(each.ledger_id for each in topic.managed_ledger.chain.spans),
        }
        assert set(rig.ledgers.entries) == ours
