"""Proves that what topics say is what the log says last, whatever becomes of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from random import Random

import pytest
from tests.unit.geminga_broker.topic_policies.event_topic import NAMESPACE, EventTopic, of

from geminga import ConnectionLost
from geminga_broker.errors import ServiceNotReady
from geminga_broker.schemas.errors import SchemaNotFound
from geminga_broker.topic_policies.event_log import READ_ANEW_S, STALL_S, WAIT_S, EventLog
from geminga_broker.topic_policies.events import EventSchema, own_schema

A, B = "persistent://t/n/a", "persistent://t/n/b"
UNKNOWN, UNREADABLE = b"unknown", b"unreadable"


class Watched:
    """A log of events, and what it tells."""

    def __init__(self, topic: EventTopic) -> None:
        self.topic = topic
        self.changed: list[set[str]] = []
        self.missing = 0
        self.schemas_are_lost = False
        self.log = EventLog(
            topic.client,
            NAMESPACE,
            self._schema_of,
            Random(1),
            on_changed=lambda keys: self._note(keys),
            on_missing=self._missing,
        )

    @property
    def ttls(self) -> dict[str, int | None]:
        """What the topics say of their messages' time to live."""
        return {key: event.policies.message_ttl_s for key, event in self.log.events.items()}

    async def _schema_of(self, version: bytes) -> EventSchema:
        if version == UNKNOWN:
            raise SchemaNotFound
        if self.schemas_are_lost:
            raise ConnectionLost("the bookies are away")
        return own_schema()

    def _note(self, keys: Collection[str]) -> None:
        self.changed.append(set(keys))

    def _missing(self) -> None:
        self.missing += 1


@pytest.fixture
def topic() -> EventTopic:
    """In which two topics say something."""
    topic = EventTopic()
    topic.add(*of("a", message_ttl_s=1))
    topic.add(*of("b", message_ttl_s=2))
    topic.add(*of("a", message_ttl_s=3))
    return topic


@pytest.fixture
async def watched(topic: EventTopic) -> AsyncIterator[Watched]:
    watched = Watched(topic)
    async with watched.log:
        yield watched


async def test_the_last_event_of_each_topic_counts(watched: Watched, topic: EventTopic) -> None:
    await watched.log.read()
    assert watched.ttls == {A: 3, B: 2}
    assert watched.changed == [{A, B}]
    topic.add(*of("a", message_ttl_s=4))
    topic.add(B, None)
    await watched.log.catch_up()
    assert watched.ttls == {A: 4}
    assert watched.changed == [{A, B}, {A}, {B}]
    assert topic.readers == 1


async def test_a_log_whose_reader_fails_says_so_and_goes_on_trying(
    watched: Watched, topic: EventTopic
) -> None:
    topic.may_open = False
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(ServiceNotReady, match=r"was not read in 10 s"):
        await watched.log.read()
    assert asyncio.get_running_loop().time() - began_s == WAIT_S
    with pytest.raises(ServiceNotReady):
        await watched.log.catch_up()
    assert watched.missing == topic.readers
    assert topic.readers < 20  # it does not try all the time
    topic.may_open = True
    await watched.log.catch_up()
    assert watched.ttls == {A: 3, B: 2}


async def test_what_was_known_counts_until_all_is_read_again(
    watched: Watched, topic: EventTopic
) -> None:
    await watched.log.read()
    seen: list[dict[str, int | None]] = []

    def interrupt() -> None:
        seen.append(watched.ttls)
        topic.reattach()  # in the midst of reading all

    topic.interruptions = {1: interrupt}
    topic.compact_away(A)
    topic.reattach()
    await watched.log.catch_up()
    assert seen == [{A: 3, B: 2}]
    assert watched.ttls == {B: 2}
    assert watched.changed == [{A, B}, {A}]


def fail() -> None:
    raise ConnectionLost("in the midst")


@pytest.mark.parametrize("is_reattached", [False, True])
async def test_a_connection_that_is_lost_while_all_is_read_has_it_read_again(
    *, is_reattached: bool, watched: Watched, topic: EventTopic
) -> None:
    topic.interruptions = {1: topic.reattach if is_reattached else fail}
    await watched.log.read()
    assert watched.ttls == {A: 3, B: 2}
    assert watched.changed == [{A, B}]
    assert topic.readers == 2


async def test_a_connection_that_is_lost_while_events_come_has_all_read_again(
    watched: Watched, topic: EventTopic
) -> None:
    await watched.log.read()
    topic.interruptions = {3: fail}
    topic.add(*of("b", message_ttl_s=5))
    await watched.log.catch_up()
    assert watched.ttls == {A: 3, B: 5}
    assert topic.readers == 2


async def test_a_removal_that_was_compacted_away_is_known_once_all_is_read_again(
    watched: Watched, topic: EventTopic
) -> None:
    await watched.log.read()
    topic.compact_away(A)
    topic.reattach()
    topic.add(*of("b", message_ttl_s=5))
    await watched.log.catch_up()
    assert watched.ttls == {B: 5}
    topic.compact_away(B)  # and the reader stays where it was
    assert watched.ttls == {B: 5}
    await asyncio.sleep(READ_ANEW_S + 1)
    topic.wake()
    await watched.log.catch_up()
    assert watched.ttls == {}


async def test_events_that_were_compacted_away_before_they_were_read_are_not_waited_for(
    watched: Watched, topic: EventTopic
) -> None:
    await watched.log.read()
    topic.last = (8, 4)  # something was published, and is not there any more
    began_s = asyncio.get_running_loop().time()
    await watched.log.catch_up()
    assert asyncio.get_running_loop().time() - began_s == STALL_S
    assert watched.ttls == {A: 3, B: 2}
    await watched.log.catch_up()
    assert asyncio.get_running_loop().time() - began_s == STALL_S


async def test_a_caller_that_asks_while_the_reader_is_closed_waits_for_the_next_one(
    watched: Watched, topic: EventTopic
) -> None:
    await watched.log.read()
    topic.closing_s = 2 * STALL_S
    await asyncio.sleep(READ_ANEW_S + 0.5)  # it is time to read all again, by another reader
    topic.last = (8, 4)
    await asyncio.gather(*(watched.log.catch_up() for _ in range(3)))
    assert topic.readers == 2


async def test_events_that_cannot_be_read_are_left_out(
    watched: Watched, topic: EventTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.add(A, b"\xff\xff garbage")
    topic.add(B, of("b", message_ttl_s=9)[1], schema_version=UNKNOWN)
    topic.add(None, b"of no topic")
    topic.add(*of("c", message_ttl_s=6), schema_version=b"known")
    await watched.log.read()
    assert watched.ttls == {A: 3, B: 2, "persistent://t/n/c": 6}
    left_out = [each for each in caplog.records if "left out" in each.message]
    assert len(left_out) == 2


async def test_a_schema_that_cannot_be_read_now_is_waited_for(
    watched: Watched, topic: EventTopic
) -> None:
    watched.schemas_are_lost = True
    topic.add(*of("b", message_ttl_s=6), schema_version=b"known")
    with pytest.raises(ServiceNotReady):
        await watched.log.read()
    watched.schemas_are_lost = False
    await watched.log.read()
    assert watched.ttls == {A: 3, B: 6}
