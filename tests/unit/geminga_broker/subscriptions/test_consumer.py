"""Proves what a consumer is sent and how its permits and unacknowledged messages are counted."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.consumer import DELIVERY_BYTES_MAX, Consumer
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_broker_entry, encode_payload

LOG = MemoryLog((1, 10))
NOTHING = cursor_over(LOG.chain).acknowledged


def batch(entry_id: int, messages: int, body: bytes = b"") -> Entry:
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=messages
    )
    return entry_id, encode_payload(metadata, body), 0


def deliver(
    consumer: Consumer,
    *run: Entry,
    acknowledged: Acknowledged = NOTHING,
    redeliveries: RedeliveryCounts | None = None,
) -> int:
    return consumer.deliver(1, list(run), 1000, acknowledged, redeliveries or RedeliveryCounts())


def nothing_to_pass(ledger_id: int, entry_id: int) -> None:
    raise AssertionError(f"{ledger_id}:{entry_id} has messages")


def test_a_batch_costs_as_many_permits_as_it_has_messages_and_is_never_split() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 12
    run = [batch(entry_id, 5) for entry_id in range(10)]
    acknowledged = cursor_over(LOG.chain).acknowledged
    assert consumer.deliver_in_order(1, run, acknowledged, nothing_to_pass) == 3
    assert consumer.permits == -3
    assert not consumer.can_take
    assert consumer.messages_out == 15


def test_of_a_batch_acknowledged_in_part_only_the_rest_costs_permits() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 10
    acknowledged = cursor_over(LOG.chain).acknowledged
    acknowledged.acknowledge_batch_indexes(1, 0, (0b00011,))
    consumer.deliver_in_order(1, [batch(0, 5)], acknowledged, nothing_to_pass)
    assert consumer.permits == 8
    assert session.commands()[0].message.ack_set == [0b00011]


def test_the_socket_is_asked_again_after_a_mebibyte() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 100
    run = [batch(entry_id, 1, bytes(300_000)) for entry_id in range(10)]
    used = consumer.deliver_in_order(1, run, cursor_over(LOG.chain).acknowledged, nothing_to_pass)
    assert used == 4
    assert consumer.bytes_out > DELIVERY_BYTES_MAX


def test_a_consumer_with_too_much_unacknowledged_waits_until_half_of_it_is_settled() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    consumer.limit_unacknowledged(100)
    first, second = Position(1, 0), Position(1, 1)
    assert deliver(consumer, (0, b"", 50), (1, b"", 50), (2, b"", 50)) == 2
    assert list(consumer.pending) == [first, second]
    assert not consumer.can_take
    assert consumer.forget(first)
    assert not consumer.forget(first)
    assert consumer.unblock()
    assert consumer.can_take


def test_what_is_given_back_tells_how_often_and_what_is_done_in_part_tells_what_is_left() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 100
    redeliveries = RedeliveryCounts()
    redeliveries.increment((1, 1))
    run: list[Entry] = [(0, b"", 1), (1, b"", 5), (2, b"", 5)]
    acknowledged = cursor_over(LOG.chain).acknowledged
    acknowledged.acknowledge_batch_indexes(1, 2, (0b101,))
    used = deliver(consumer, *run, acknowledged=acknowledged, redeliveries=redeliveries)
    assert used == 3
    sent = [command.message for command in session.commands()]
    assert [each.redelivery_count for each in sent] == [0, 1, 0]
    assert [list(each.ack_set) for each in sent] == [[], [], [0b101]]
    assert consumer.pending == {(1, 0): 1, (1, 1): 5, (1, 2): 2}
    assert (consumer.permits, consumer.unacknowledged, consumer.messages_redelivered) == (92, 8, 5)


def test_a_turn_ends_with_its_messages_and_before_what_must_be_looked_at() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 6
    run: list[Entry] = [(0, b"", 2), (1, b"", 2), (2, b"", 2), (3, b"", 0), (4, b"", 9)]
    assert consumer.deliver(1, run, 3, NOTHING, RedeliveryCounts()) == 2
    assert deliver(consumer, *run[2:]) == 1
    assert deliver(consumer, *run[3:]) == 0
    assert (consumer.permits, consumer.messages_out) == (0, 6)


def test_the_socket_is_asked_again_after_a_mebibyte_of_tracked_entries() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 100
    run: list[Entry] = [(entry_id, bytes(300_000), 1) for entry_id in range(10)]
    assert deliver(consumer, *run) == 4


def test_the_moment_of_the_last_delivery_is_known() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1
    assert consumer.last_sent_ms == 0
    acknowledged = cursor_over(LOG.chain).acknowledged
    consumer.deliver_in_order(1, [batch(0, 1)], acknowledged, nothing_to_pass)
    assert consumer.last_sent_ms >= consumer.connected_at_ms > 0


def test_a_limit_holds_for_what_was_sent_before_it_was_set() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    deliver(consumer, (0, b"", 60))
    blocked: list[bool] = []
    for messages_max in (61, 60, 0):
        consumer.limit_unacknowledged(messages_max)
        blocked.append(consumer.is_blocked_on_unacknowledged)
    assert blocked == [False, True, False]


def test_of_a_batch_only_the_messages_left_are_unacknowledged() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    deliver(consumer, (0, b"", 60))
    assert consumer.hold_only(Position(1, 0), 10)
    assert consumer.unacknowledged == 10
    assert consumer.hold_only(Position(1, 0), 64)
    assert not consumer.hold_only(Position(1, 1), 10)
    assert consumer.unacknowledged == 10
    assert consumer.forget(Position(1, 0))
    assert consumer.unacknowledged == 0


MARKER = encode_payload(
    api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, marker_type=10), b""
)


def test_what_has_no_messages_costs_nothing_and_is_passed_over() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 10
    run: list[Entry] = [(0, b"garbage", 0), batch(1, 5), (2, MARKER, 0)]
    passed: list[tuple[int, int]] = []
    acknowledged = cursor_over(LOG.chain).acknowledged

    def pass_over(ledger_id: int, entry_id: int) -> None:
        passed.append((ledger_id, entry_id))

    used = consumer.deliver_in_order(1, run, acknowledged, pass_over)
    assert (used, consumer.permits, passed) == (3, 5, [(1, 0), (1, 2)])
    assert [each.message.message_id.entryId for each in session.commands()] == [1]


STAMP = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=1, index=4))


@pytest.mark.parametrize(("gets_broker_entries", "head"), [(False, b""), (True, STAMP)])
def test_what_brokers_wrote_in_front_is_only_for_clients_that_know_it(
    *, gets_broker_entries: bool, head: bytes
) -> None:
    consumer = consumer_of(NotedSession())
    consumer.gets_broker_entries = gets_broker_entries
    payload = batch(0, 5)[1]
    assert consumer.look(STAMP + payload) == (5, head + payload)
    assert consumer.look(STAMP + b"garbage") == (0, head + b"garbage")
    assert consumer.look(payload) == (5, payload)
