"""Proves what a subscription does with acknowledgements, and which consumers it lets in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    Told,
    consumer_of,
    cursor_over,
)

from geminga_broker.errors import (
    ConsumerBusy,
    ConsumerNotAssigned,
    InvalidRequest,
    NotAllowed,
    StorageUnavailable,
)
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import KeySharedPolicy
from geminga_broker.subscriptions.redelivery_count_store import has_stored_counts
from geminga_broker.subscriptions.subscription import Subscription
from geminga_protocol.pulsar.enums import KeySharedMode, SubscriptionType
from geminga_protocol.records.topics.redelivery_counts import CountedRun, properties_of_runs
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubscriptionType


class Owner:
    """The topic, which notes what it is told."""

    failover_delay_s = 0.0

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.left: list[str] = []

    def subscription_left(self, subscription: Subscription) -> None:
        self.left.append(subscription.name)

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        subscription.give_up(consumer, force=force)
        self.deleted.append(subscription.name)


def subscription_over(log: MemoryLog, owner: Owner | None = None) -> Subscription:
    return Subscription(
        owner or Owner(),
        "persistent://t/n/topic",
        -1,
        log,  # type: ignore[arg-type]  # a stand-in with what subscriptions use
        cursor_over(log.chain),
        SimulatedClock(),
    )


async def joined(
    subscription: Subscription, kind: SubscriptionType, name: str = "c", *, permits: int = 100
) -> tuple[Consumer, NotedSession]:
    session = NotedSession()
    await subscription.admit(kind)
    consumer = consumer_of(session, name)
    subscription.connected(consumer)
    subscription.flow(consumer, permits)
    return consumer, session


ids = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 24)), min_size=1, max_size=40)
runs = st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 24)).map(
    lambda run: [(run[0], run[1] + number) for number in range(run[2])]
)


@given(st.lists(ids | runs, max_size=8), st.sampled_from([EXCLUSIVE, SHARED]))
def test_entries_acknowledged_together_are_as_good_as_one_by_one(
    commands: list[list[tuple[int, int]]], kind: SubscriptionType
) -> None:
    async def acknowledged_by(
        acknowledge: Callable[[Subscription, Consumer, list[tuple[int, int]]], None],
    ) -> list[object]:
        subscription = subscription_over(MemoryLog((0, 20), (1, 8), (3, 20)))
        consumer, _ = await joined(subscription, kind, permits=30)
        other, _ = await joined(subscription, kind) if kind is SHARED else (consumer, None)
        for command in commands:
            acknowledge(subscription, consumer, list(command))
        subscription.redeliver(other, None)
        return [
            subscription.cursor.mark_delete,
            list(subscription.cursor.acknowledged.ranges()),
            consumer.messages_acknowledged,
            consumer.unacknowledged,
            sorted(consumer.pending),
            sorted(other.pending),
        ]

    def together(
        subscription: Subscription, consumer: Consumer, ids: list[tuple[int, int]]
    ) -> None:
        subscription.acknowledger.entries(consumer, ids)

    def singly(subscription: Subscription, consumer: Consumer, ids: list[tuple[int, int]]) -> None:
        for ledger_id, entry_id in ids:
            subscription.acknowledger.single(consumer, [(ledger_id, entry_id, ())], None)

    loop = SimulatedLoop()
    try:
        assert loop.run_until_complete(acknowledged_by(together)) == loop.run_until_complete(
            acknowledged_by(singly)
        )
    finally:
        loop.close()


async def test_an_exclusive_subscription_has_no_room_for_a_second_consumer() -> None:
    subscription = subscription_over(MemoryLog((1, 1)))
    await joined(subscription, EXCLUSIVE)
    with pytest.raises(ConsumerBusy, match="Exclusive consumer is already connected"):
        await subscription.admit(EXCLUSIVE)


async def test_a_range_of_keys_has_one_consumer() -> None:
    subscription = subscription_over(MemoryLog((1, 1)))
    wanted = KeySharedPolicy(KeySharedMode.STICKY, ranges=((0, 99),))
    await subscription.admit(KEY_SHARED, wanted)
    subscription.connected(consumer_of(NotedSession(), "first", key_shared=wanted))
    with pytest.raises(ConsumerNotAssigned, match="Range conflict with consumer first"):
        await subscription.admit(KEY_SHARED, replace(wanted, ranges=((99, 99),)))
    await subscription.admit(KEY_SHARED, replace(wanted, ranges=((100, 100),)))


async def test_a_consumer_that_settled_half_of_too_much_is_sent_more() -> None:
    count = 110
    subscription = subscription_over(MemoryLog((1, count)))
    subscription.membership.limit(UnacknowledgedLimits(per_consumer=100))
    consumer, session = await joined(subscription, SHARED, permits=count)
    assert consumer.is_blocked_on_unacknowledged
    subscription.acknowledger.entries(consumer, [(1, entry) for entry in range(count // 2)])
    assert len(session.positions()) == count


async def test_entries_another_consumer_holds_are_acknowledged_for_it() -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    first, _ = await joined(subscription, SHARED, "first", permits=10)
    second, _ = await joined(subscription, SHARED, "second")
    subscription.acknowledger.entries(second, [(1, entry) for entry in range(10)])
    assert first.unacknowledged == 0
    assert second.messages_acknowledged == 10
    assert subscription.cursor.mark_delete == Position(1, 9)


@pytest.mark.parametrize("has_ack_sets", [False, True])
async def test_a_blocked_consumer_goes_on_when_another_acknowledges_for_it(
    *, has_ack_sets: bool
) -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    subscription.membership.limit(UnacknowledgedLimits(per_consumer=4))
    blocked, session = await joined(subscription, SHARED, "blocked")
    other, _ = await joined(subscription, SHARED, "other", permits=0)
    assert blocked.is_blocked_on_unacknowledged
    held = session.positions()
    if has_ack_sets:
        subscription.acknowledger.single(other, [(*each, (0,)) for each in held], None)
    else:
        subscription.acknowledger.entries(other, list(held))
    assert len(session.positions()) == 2 * len(held)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_a_subscription_with_too_much_unacknowledged_waits_until_half_of_it_is_settled(
    kind: SubscriptionType,
) -> None:
    subscription = subscription_over(MemoryLog((1, 2000)))
    subscription.membership.limit(UnacknowledgedLimits(per_subscription=1000))
    members = [(await joined(subscription, kind, name, permits=2000))[0] for name in "ab"]
    sent = subscription.sent().messages
    assert 1000 <= sent < 2000
    assert subscription.membership.dispatcher is not None
    assert subscription.membership.dispatcher.is_blocked_on_unacknowledged
    settled = 0
    while subscription.sent().messages == sent:
        subscription.acknowledger.entries(members[0], [(1, settled)])
        settled += 1
    assert settled == sent - 499


async def test_of_a_batch_only_the_messages_left_count_as_unacknowledged() -> None:
    subscription = subscription_over(MemoryLog((1, 2)))
    holder, _ = await joined(subscription, SHARED)
    other, _ = await joined(subscription, SHARED)
    holder.pending[Position(1, 0)] = 64
    holder.unacknowledged += 63
    subscription.acknowledger.single(other, [(1, 0, (0b1011,))], None)
    assert holder.unacknowledged == 4
    subscription.acknowledger.single(holder, [(1, 0, (0b0011,))], None)
    assert holder.unacknowledged == 3
    subscription.acknowledger.single(holder, [(1, 0, (0b1000,))], None)
    assert holder.unacknowledged == 1


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_no_consumer_holds_what_a_moved_cursor_has_passed(kind: SubscriptionType) -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    subscription.membership.limit(UnacknowledgedLimits(per_consumer=4))
    consumer, session = await joined(subscription, kind)
    subscription.cursor.acknowledged.acknowledge_upto(Position(1, 2))
    held = len(session.positions())
    subscription.skip_acknowledged()
    assert consumer.unacknowledged == held - 3
    subscription.entries_available()
    assert len(session.positions()) > held


async def test_no_consumer_holds_skipped_entries_in_whatever_order_they_were_sent() -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    first, _ = await joined(subscription, SHARED, permits=2)
    second, _ = await joined(subscription, SHARED)
    subscription.membership.remove(first)
    assert list(second.pending)[-2:] == [Position(1, 0), Position(1, 1)], "given back, sent last"
    await subscription.skipping.entries(1)
    assert Position(1, 0) not in second.pending
    assert second.unacknowledged == 9


async def test_what_was_skipped_may_still_be_acknowledged() -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    consumer, _ = await joined(subscription, SHARED)
    subscription.cursor.acknowledged.acknowledge_upto(Position(1, 4))
    subscription.acknowledger.entries(consumer, [(1, 1), (1, 2)])
    subscription.acknowledger.single(consumer, [(1, 3, ())], None)
    assert consumer.unacknowledged == 7


async def test_a_cumulative_acknowledgement_is_not_for_shared() -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    consumer, _ = await joined(subscription, SHARED)
    with pytest.raises(NotAllowed, match="needs an Exclusive or Failover"):
        subscription.acknowledger.upto(consumer, Position(1, 3), (), None)
    assert subscription.cursor.mark_delete == Position(1, -1)


async def test_consumers_of_one_type_at_a_time_are_let_in() -> None:
    subscription = subscription_over(MemoryLog((1, 1)))
    consumer, _ = await joined(subscription, SHARED)
    for kind in (EXCLUSIVE, FAILOVER):
        with pytest.raises(ConsumerBusy, match="different type"):
            await subscription.admit(kind)
    await subscription.disconnect(consumer)
    await joined(subscription, EXCLUSIVE)


async def test_counters_outlive_the_consumers_they_came_from() -> None:
    subscription = subscription_over(MemoryLog((1, 10)))
    for permits in (4, 6):
        consumer, _ = await joined(subscription, SHARED, permits=permits)
        await subscription.disconnect(consumer)
    assert subscription.sent().messages == 10
    assert subscription.sent().size_bytes > 0


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_a_subscription_in_order_has_no_dispatcher_while_no_consumer_is_connected(
    kind: SubscriptionType,
) -> None:
    subscription = subscription_over(MemoryLog((1, 4)))
    for first in (0, 2):
        consumer, session = await joined(subscription, kind, permits=2)
        assert session.positions() == [(1, first), (1, first + 1)]
        subscription.acknowledger.upto(consumer, Position(1, first + 1), (), None)
        await subscription.disconnect(consumer)
        assert (subscription.membership.dispatcher, subscription.type) == (None, kind)
    assert (subscription.sent().entries, subscription.sent().messages) == (4, 4)


async def test_a_consumer_let_in_before_the_last_one_went_is_served() -> None:
    subscription = subscription_over(MemoryLog((1, 2)))
    consumer, _ = await joined(subscription, FAILOVER, permits=1)
    await subscription.admit(FAILOVER)
    await subscription.disconnect(consumer)
    session = NotedSession()
    follower = consumer_of(session)
    subscription.connected(follower)
    subscription.flow(follower, 9)
    assert session.positions() == [(1, 0), (1, 1)]


async def test_what_is_fetched_for_a_consumer_that_went_is_counted() -> None:
    log = MemoryLog((1, 3))
    log.is_cold = True
    subscription = subscription_over(log)
    consumer, _ = await joined(subscription, EXCLUSIVE)
    await subscription.disconnect(consumer)
    await log.settled()
    assert subscription.sent().entries_fetched == 3
    await subscription.disconnect((await joined(subscription, EXCLUSIVE))[0])
    await log.settled()
    assert (subscription.sent().entries_fetched, log.reads) == (6, 2)


async def test_redelivery_counts_outlive_the_last_consumer_and_the_type() -> None:
    subscription = subscription_over(MemoryLog((1, 2)))
    consumer, _ = await joined(subscription, SHARED)
    for _ in range(2):
        subscription.redeliver(consumer, [Position(1, 1)])
    await subscription.disconnect(consumer)
    for kind in (SHARED, KEY_SHARED):
        consumer, session = await joined(subscription, kind)
        assert session.messages() == [(Position(1, 0), 0), (Position(1, 1), 2)]
        await subscription.disconnect(consumer)


async def test_an_entry_that_a_cumulative_acknowledgement_passed_is_not_counted_any_more() -> None:
    subscription = subscription_over(MemoryLog((1, 2), (2, 1)))
    consumer, _ = await joined(subscription, SHARED)
    subscription.redeliver(consumer, [Position(1, 1)])
    await subscription.disconnect(consumer)
    consumer, _ = await joined(subscription, EXCLUSIVE)
    subscription.acknowledger.upto(consumer, Position(1, 1), (), None)
    subscription.passed_ledger()
    assert not subscription.redelivery_counts.counts


async def test_a_seek_begins_counting_anew() -> None:
    subscription = subscription_over(MemoryLog((1, 2)))
    consumer, _ = await joined(subscription, SHARED)
    subscription.redeliver(consumer, None)
    await subscription.seek(Position(1, 0))
    _, session = await joined(subscription, SHARED)
    assert session.messages() == [(Position(1, 0), 0), (Position(1, 1), 0)]


async def test_a_seek_that_fails_is_over() -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable("no bookie answers")

    subscription = subscription_over(MemoryLog((1, 2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Acknowledged, "reset", fail)
        with pytest.raises(StorageUnavailable):
            await subscription.seek(Position(1, 1))
    await joined(subscription, SHARED)
    await subscription.seek(Position(1, 1))
    assert subscription.cursor.mark_delete == Position(1, 0)


async def test_a_seek_forgets_stored_counts_that_were_never_loaded_too() -> None:
    subscription = subscription_over(MemoryLog((1, 2)))
    kept = properties_of_runs([CountedRun(1, 0, 1, 3)])
    subscription.cursor.position_properties = kept
    await subscription.seek(Position(1, 0))
    assert not has_stored_counts(subscription.cursor)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_only_entries_that_a_consumer_holds_count_as_given_back(
    kind: SubscriptionType,
) -> None:
    subscription = subscription_over(MemoryLog((1, 4)))
    leaving, _ = await joined(subscription, kind, "leaving")
    staying, session = await joined(subscription, kind, "staying")
    held = set(leaving.pending)
    assert held
    subscription.redeliver(staying, list(held))
    await subscription.disconnect(leaving)
    assert [count for position, count in session.messages() if position in held] == [0] * len(held)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_what_is_acknowledged_is_not_counted_any_more(kind: SubscriptionType) -> None:
    subscription = subscription_over(MemoryLog((1, 4)))
    consumer, _ = await joined(subscription, kind)
    subscription.redeliver(consumer, None)
    counts = subscription.redelivery_counts.counts
    assert len(counts) == 4
    subscription.acknowledger.single(consumer, [(1, 1, ())], None)
    assert len(counts) == 3
    subscription.acknowledger.entries(consumer, [(1, 2), (1, 3)])
    assert len(counts) == 1


async def test_only_the_sole_consumer_unsubscribes_unless_forced() -> None:
    owner = Owner()
    subscription = subscription_over(MemoryLog((1, 1)), owner)
    first, _ = await joined(subscription, FAILOVER, "first")
    told = Told()
    await subscription.admit(FAILOVER)
    second = consumer_of(NotedSession(), "second", told=told)
    subscription.connected(second)
    with pytest.raises(InvalidRequest):
        await subscription.unsubscribe(first, force=False)
    await subscription.unsubscribe(first, force=True)
    assert told.closures == 1
    assert owner.deleted == ["sub"]


@pytest.mark.parametrize("kind", [SHARED, FAILOVER, KEY_SHARED])
async def test_consumers_that_are_closed_together_get_nothing_of_each_other(
    kind: SubscriptionType,
) -> None:
    subscription = subscription_over(MemoryLog((1, 40)))
    sessions = [(await joined(subscription, kind, f"c{number}"))[1] for number in range(3)]
    before = [len(session.positions()) for session in sessions]
    assert sum(before) >= 40
    subscription.close_consumers()
    assert [len(session.positions()) for session in sessions] == before
    assert subscription.consumers == []
