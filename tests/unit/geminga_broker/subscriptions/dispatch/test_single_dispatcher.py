"""Proves what Exclusive and Failover subscriptions deliver, where to, and again after a change."""

from __future__ import annotations

import asyncio

from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    Told,
    consumer_of,
    cursor_over,
)

from geminga_broker.managed_ledger.positions import Position
from geminga_broker.subscriptions.dispatch.single_dispatcher import SingleDispatcher


def dispatcher_over(
    log: MemoryLog, *, is_exclusive: bool = True, handover_delay_s: float = 0.0
) -> SingleDispatcher:
    return SingleDispatcher(
        log,  # type: ignore[arg-type]  # a stand-in with what dispatchers use
        cursor_over(log.chain),
        [],
        topic="persistent://t/n/topic",
        partition=0,
        is_exclusive=is_exclusive,
        handover_delay_s=handover_delay_s,
    )


def test_no_more_is_sent_than_there_are_permits() -> None:
    dispatcher, session = dispatcher_over(MemoryLog((1, 5), (2, 5))), NotedSession()
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    consumer.permits = 7
    dispatcher.dispatch()
    assert session.positions() == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0), (2, 1)]
    assert consumer.permits == 0


def test_acknowledged_entries_are_skipped_and_cost_no_permit() -> None:
    dispatcher, session = dispatcher_over(MemoryLog((1, 6))), NotedSession()
    for entry in (1, 2, 4):
        dispatcher.cursor.acknowledged.acknowledge(1, entry)
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    consumer.permits = 10
    dispatcher.dispatch()
    assert session.positions() == [(1, 0), (1, 3), (1, 5)]
    assert consumer.permits == 7


def test_a_full_socket_gets_nothing_until_it_drains() -> None:
    dispatcher, session = dispatcher_over(MemoryLog((1, 3))), NotedSession()
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    consumer.permits = 10
    session.is_writable = False
    dispatcher.dispatch()
    assert session.positions() == []
    session.is_writable = True
    dispatcher.dispatch()
    assert len(session.positions()) == 3


def test_the_next_active_consumer_begins_after_the_mark_delete_position() -> None:
    log = MemoryLog((1, 4))
    dispatcher = dispatcher_over(log, is_exclusive=False)
    first, second = NotedSession(), NotedSession()
    told_first, told_second = Told(), Told()
    one = consumer_of(first, "a", told=told_first)
    two = consumer_of(second, "b", told=told_second)
    dispatcher.add(one)
    dispatcher.add(two)
    assert dispatcher.active is one
    assert (told_first.active, told_second.active) == ([True], [False])
    one.permits = two.permits = 10
    dispatcher.dispatch()
    assert second.positions() == []
    dispatcher.cursor.acknowledged.acknowledge(1, 0)
    dispatcher.remove(one)
    assert dispatcher.active is two
    assert told_second.active == [False, True]
    assert second.positions() == [(1, 1), (1, 2), (1, 3)]


async def test_what_the_one_before_acknowledges_in_time_is_not_sent_to_the_next() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 4)), is_exclusive=False, handover_delay_s=1.0)
    first, second = NotedSession(), NotedSession()
    told_first, told_second = Told(), Told()
    one = consumer_of(first, "b", told=told_first)
    one.permits = 10
    dispatcher.add(one)
    assert (dispatcher.active, told_first.active) == (one, [])
    await asyncio.sleep(1.1)
    assert (told_first.active, len(first.positions())) == ([True], 4)
    two = consumer_of(second, "a", told=told_second)
    two.permits = 10
    dispatcher.add(two)
    assert dispatcher.active is two
    dispatcher.dispatch()
    await asyncio.sleep(0.9)
    dispatcher.cursor.acknowledged.acknowledge_upto(Position(1, 2))
    assert (second.positions(), told_second.active) == ([], [])
    await asyncio.sleep(0.2)
    assert second.positions() == [(1, 3)]
    assert (told_first.active, told_second.active) == ([True, False], [True])


async def test_who_is_chosen_last_within_the_delay_gets_everything_once() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 2)), is_exclusive=False, handover_delay_s=1.0)
    sessions = {name: NotedSession() for name in "cba"}
    consumers = {name: consumer_of(session, name) for name, session in sessions.items()}
    for consumer in consumers.values():
        consumer.permits = 10
        dispatcher.add(consumer)
        await asyncio.sleep(0.2)
    dispatcher.remove(consumers["a"])
    assert dispatcher.active is consumers["b"]
    await asyncio.sleep(0.5)
    sent = {name: len(session.positions()) for name, session in sessions.items()}
    assert sent == {"a": 0, "b": 2, "c": 0}


async def test_when_the_last_one_goes_within_the_delay_nothing_is_handed_over() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 2)), is_exclusive=False, handover_delay_s=1.0)
    gone, session = consumer_of(NotedSession(), "a"), NotedSession()
    dispatcher.add(gone)
    dispatcher.remove(gone)
    await asyncio.sleep(0.9)
    consumer = consumer_of(session, "b")
    consumer.permits = 10
    dispatcher.add(consumer)
    await asyncio.sleep(0.9)
    assert session.positions() == []
    await asyncio.sleep(0.2)
    assert len(session.positions()) == 2


async def test_an_exclusive_consumer_waits_for_no_handover() -> None:
    dispatcher = dispatcher_over(MemoryLog((1, 2)), handover_delay_s=1.0)
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 10
    dispatcher.add(consumer)
    assert len(session.positions()) == 2


def test_redelivery_begins_again_in_order() -> None:
    dispatcher, session = dispatcher_over(MemoryLog((1, 3))), NotedSession()
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    consumer.permits = 10
    dispatcher.dispatch()
    dispatcher.cursor.acknowledged.acknowledge(1, 0)
    dispatcher.redeliver(consumer, [Position(1, 2)])
    assert session.positions()[3:] == [(1, 1), (1, 2)]


async def test_what_is_not_cached_is_read_once_and_then_delivered() -> None:
    log = MemoryLog((1, 40))
    log.is_cold = True
    dispatcher, session = dispatcher_over(log), NotedSession()
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    consumer.permits = 25
    dispatcher.dispatch()
    dispatcher.dispatch()
    await log.settled()
    assert session.positions() == [(1, entry) for entry in range(25)]
    consumer.permits = 100
    dispatcher.dispatch()
    await log.settled()
    assert session.positions() == [(1, entry) for entry in range(40)]
    assert log.reads == 1


def test_what_another_acknowledged_meanwhile_is_not_sent() -> None:
    log = MemoryLog((1, 5))
    dispatcher = dispatcher_over(log)
    session = NotedSession()
    consumer = consumer_of(session)
    dispatcher.add(consumer)
    dispatcher.cursor.acknowledged.acknowledge_upto(Position(1, 2))
    consumer.permits = 10
    dispatcher.dispatch()
    assert session.positions() == [(1, 3), (1, 4)]
