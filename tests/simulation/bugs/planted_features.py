"""Bugs planted in single features of a broker, one promise broken by each (see ``planted``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from geminga import Message
from geminga.consumers.incoming import chunks
from geminga.consumers.topic_consumer import TopicConsumer
from geminga_bookie.sessions.v3_adds import V3Adds
from geminga_broker.errors import BrokerError
from geminga_broker.managed_ledger.acknowledgement import cursor_state
from geminga_broker.managed_ledger.acknowledgement.acknowledged import Words
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.ledger_chain.retention import KEEP_NOTHING
from geminga_broker.managed_ledger.managed_ledger import CHANGE_DEADLINE_S, ManagedLedger
from geminga_broker.managed_ledger.positions import EARLIEST, Position
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.managed_ledger.writing import broker_entry_metadata
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_broker.managed_ledger.writing.broker_entry_metadata import NO_INDEX, StampedLog
from geminga_broker.policies.backlog import Quota
from geminga_broker.subscriptions.cursor_moves.cursor_reset import CursorReset
from geminga_broker.subscriptions.cursor_moves.expiry_monitor import ExpiryMonitor
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_protocol.bookkeeper import requests_pb2 as pb
from geminga_protocol.bookkeeper.v3 import encode_frame, make_response


def forget_places_in_batches(patch: pytest.MonkeyPatch) -> None:
    """A seek to a message within a batch goes to the first of its batch."""
    honest = CursorReset._move_to

    async def move(resetting: CursorReset, position: Position, remaining: Words = ()) -> None:
        del remaining
        await honest(resetting, position)

    patch.setattr(CursorReset, "_move_to", move)


def seek_an_entry_behind(patch: pytest.MonkeyPatch) -> None:
    """A seek to a time goes behind the first entry of that time."""
    honest = LogReader.first_where

    async def one_further(
        reader: LogReader, is_reached: Callable[[bytes], bool], *, after: Position = EARLIEST
    ) -> Position:
        return reader.chain.next_after(await honest(reader, is_reached, after=after))

    patch.setattr(LogReader, "first_where", one_further)


def believe_the_index_of_the_record(patch: pytest.MonkeyPatch) -> None:
    """Brokers that take a topic over go on with the index in its record, which is older than the
    last entry."""
    honest = broker_entry_metadata._last_index

    async def last_index(stored: StampedLog, *, is_sure: bool) -> int:
        return await honest(stored, is_sure=True) if is_sure else NO_INDEX

    patch.setattr(broker_entry_metadata, "_last_index", last_index)


def keep_the_room_of_dead_letters(patch: pytest.MonkeyPatch) -> None:
    """Consumers ask for no other message in the place of one that they bury when it comes."""
    honest = TopicConsumer._without_dead

    def without_dead(consumer: TopicConsumer, messages: list[Message[Any]]) -> list[Message[Any]]:
        left = honest(consumer, messages)
        consumer.channel.return_permits(len(left) - len(messages))
        return left

    patch.setattr(TopicConsumer, "_without_dead", without_dead)


def forget_parts_of_batches(patch: pytest.MonkeyPatch) -> None:
    """What is acknowledged of a batch is not written down before all of it is."""

    def nothing(batches: Iterable[tuple[Position, Words]], *_: int) -> tuple[()]:
        del batches
        return ()

    patch.setattr(cursor_state, "_batches_within", nothing)


def take_a_message_for_whole_early(patch: pytest.MonkeyPatch) -> None:
    """A message is whole when all its chunks but the last are there."""
    honest = chunks._IncompleteMessage

    def begin(expires_s: float, count: int) -> object:
        return honest(expires_s, max(1, count - 1))

    patch.setattr(chunks, "_IncompleteMessage", begin)


def truncate_what_is_closed(patch: pytest.MonkeyPatch) -> None:
    """A truncation begins another ledger when cursors have passed what there was, and so leaves the
    ledger to which something came meanwhile."""

    async def truncate(log: ManagedLedger) -> None:
        await log.trimmer.pass_everything(log.chain.last_confirmed, CHANGE_DEADLINE_S)
        await log.roll_over()
        await log.trimmer.trim(KEEP_NOTHING)

    patch.setattr(ManagedLedger, "truncate", truncate)


def delete_no_cursor(patch: pytest.MonkeyPatch) -> None:
    """A subscription that is given up leaves what it has acknowledged to the next of its name."""

    async def keep(cursor: Cursor) -> None:
        await cursor.__aexit__(None, None, None)

    patch.setattr(Cursor, "delete", keep)


def answer_v3_adds_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Bookies say that an entry is durable that came over V3 when they have it in memory."""

    def answer(adds: V3Adds, request: pb.Request) -> None:
        adds._write([encode_frame(make_response(request))])

    patch.setattr(V3Adds, "_answer_when_durable", answer)


def expire_early(patch: pytest.MonkeyPatch) -> None:
    """Messages expire a second before their time."""
    honest = ExpiryMonitor.older_than

    async def sooner(expiring: ExpiryMonitor, ttl_s: int, *, spares_delayed: bool) -> None:
        await honest(expiring, ttl_s - 1, spares_delayed=spares_delayed)

    patch.setattr(ExpiryMonitor, "older_than", sooner)


def expire_never(patch: pytest.MonkeyPatch) -> None:
    """Brokers do not look for what has expired."""

    async def keep(expiring: ExpiryMonitor, ttl_s: int, *, spares_delayed: bool) -> None:
        del expiring, ttl_s, spares_delayed

    patch.setattr(ExpiryMonitor, "older_than", keep)


def publish_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    """What is published is counted, and not waited for."""
    patch.setattr(PublishRate, "wait_s", lambda *_: 0.0)


def dispatch_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    """What is dispatched is not counted."""
    patch.setattr(RateLimiter, "take", lambda *_: None)


def send_what_is_not_kept_twice(patch: pytest.MonkeyPatch) -> None:
    """The consumers of a non-persistent topic are sent each message twice."""
    honest = NonPersistentSubscription.deliver

    def twice(subscription: NonPersistentSubscription, payload: bytes, messages: int) -> None:
        honest(subscription, payload, messages)
        honest(subscription, payload, messages)

    patch.setattr(NonPersistentSubscription, "deliver", twice)


def evict_half_of_a_backlog(patch: pytest.MonkeyPatch) -> None:
    """A subscription whose backlog is over its quota loses half of what it may keep."""
    patch.setattr(Quota, "target", property(lambda quota: quota.limit // 2))


def let_all_be_exclusive(patch: pytest.MonkeyPatch) -> None:
    """An exclusive producer is let in beside others."""
    patch.setattr(Producers, "_check_access", lambda *_: None)


def keep_the_room_of_refusals(patch: pytest.MonkeyPatch) -> None:
    """What a message takes of the room for what is not durable yet stays taken if it is refused."""
    honest = Producer.fail

    def fail(producer: Producer, request: AppendRequest, error: BrokerError) -> None:
        honest(producer, request, error)
        producer.session.confirmed(-len(payload_of(request)))

    patch.setattr(Producer, "fail", fail)
