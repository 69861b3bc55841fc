"""Proves what a consumer is sent and how its permits and unacknowledged messages are counted."""

from __future__ import annotations

from tests.unit.magnetar_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from magnetar_broker.log.positions import Entry, Position
from magnetar_broker.subscriptions.consumer import DELIVERY_BYTES_MAX
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.payload import encode_payload

LOG = MemoryLog((1, 10))


def batch(entry_id: int, messages: int, body: bytes = b"") -> Entry:
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=messages
    )
    return entry_id, encode_payload(metadata, body), 0


def test_a_batch_costs_as_many_permits_as_it_has_messages_and_is_never_split() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 12
    run = [batch(entry_id, 5) for entry_id in range(10)]
    acknowledged = cursor_over(LOG.chain).acknowledged
    assert consumer.deliver_in_order(1, run, acknowledged) == 3
    assert consumer.permits == -3
    assert not consumer.can_take
    assert consumer.messages_out == 15


def test_of_a_batch_acknowledged_in_part_only_the_rest_costs_permits() -> None:
    session = NotedSession()
    consumer = consumer_of(session)
    consumer.permits = 10
    acknowledged = cursor_over(LOG.chain).acknowledged
    acknowledged.acknowledge_batch_indexes(1, 0, (0b00011,))
    consumer.deliver_in_order(1, [batch(0, 5)], acknowledged)
    assert consumer.permits == 8
    assert session.commands()[0].message.ack_set == [0b00011]


def test_the_socket_is_asked_again_after_a_mebibyte() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 100
    run = [batch(entry_id, 1, bytes(300_000)) for entry_id in range(10)]
    used = consumer.deliver_in_order(1, run, cursor_over(LOG.chain).acknowledged)
    assert used == 4
    assert consumer.bytes_out > DELIVERY_BYTES_MAX


def test_a_consumer_with_too_much_unacknowledged_waits_until_half_of_it_is_settled() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    consumer.limit_unacknowledged(100)
    first, second = Position(1, 0), Position(1, 1)
    for position in (first, second):
        consumer.deliver(position, b"", 50, 0, None)
    assert not consumer.can_take
    assert consumer.forget(first)
    assert not consumer.forget(first)
    assert consumer.unblock()
    assert consumer.can_take


def test_the_moment_of_the_last_delivery_is_known() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1
    assert consumer.last_sent_ms == 0
    consumer.deliver_in_order(1, [batch(0, 1)], cursor_over(LOG.chain).acknowledged)
    assert consumer.last_sent_ms >= consumer.connected_at_ms > 0


def test_a_limit_holds_for_what_was_sent_before_it_was_set() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    consumer.deliver(Position(1, 0), b"", 60, 0, None)
    blocked: list[bool] = []
    for messages_max in (61, 60, 0):
        consumer.limit_unacknowledged(messages_max)
        blocked.append(consumer.is_blocked_on_unacknowledged)
    assert blocked == [False, True, False]


def test_of_a_batch_only_the_messages_left_are_unacknowledged() -> None:
    consumer = consumer_of(NotedSession())
    consumer.permits = 1000
    consumer.deliver(Position(1, 0), b"", 60, 0, None)
    assert consumer.hold_only(Position(1, 0), 10)
    assert consumer.unacknowledged == 10
    assert consumer.hold_only(Position(1, 0), 64)
    assert not consumer.hold_only(Position(1, 1), 10)
    assert consumer.unacknowledged == 10
    assert consumer.forget(Position(1, 0))
    assert consumer.unacknowledged == 0
