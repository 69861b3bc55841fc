"""Bugs planted in what is tested, one promise broken by each: a checker that finds none is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace

import pytest

from geminga._channels.producer_channel import ProducerChannel
from geminga._transport.connection_pool import ConnectionPool
from geminga_bookie.journal.journal import Group, Journal
from geminga_bookie.storage.ledgers import Ledger
from geminga_bookie.storage.storage import Storage as BookieStorage
from geminga_broker.compaction.compacted_ledger import CompactedEntry, CompactedLedger
from geminga_broker.compaction.stream import CompactionSource
from geminga_broker.compaction.topic_compactor import TopicCompactor
from geminga_broker.delayed.bucket_store import BucketStore
from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.delayed.schedule.message_index import Bucket, DelayedMessageIndex
from geminga_broker.errors import StorageUnavailable
from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState, naming_record
from geminga_broker.managed_ledger.cursors import cursor_store
from geminga_broker.managed_ledger.cursors.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.cursors.cursor_store import CursorStore
from geminga_broker.managed_ledger.positions import INT64_MAX, Position
from geminga_broker.managed_ledger.records.own_record import OwnRecord
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.cursor_moves.acknowledger import Acknowledger
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_broker.subscriptions.dispatch.cursor_reader import CursorReader
from geminga_broker.subscriptions.distribution.draining_hashes import DrainingHashes
from geminga_broker.subscriptions.redelivery_count_store import RedeliveryCountStore
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.producers.deduplication import Deduplication
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_broker.topics.subscriptions.persistent_subscriptions import PersistentSubscriptions
from geminga_ledger.reading import range_read
from geminga_ledger.replication.quorum import Acknowledgements, EntrySearch, Quorum, Verdict
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord
from geminga_protocol.records.topics.delayed_buckets import DelayedIndex
from geminga_scenarios.storage import Storage
from geminga_simulation.errors import InvariantViolated, SimulationError

Plant = Callable[[pytest.MonkeyPatch], None]

SEEDS_TO_FIND = 40
# Bookies have made what they find again by their name, the cookies, after so long.
HONEST_S = 0.3


def _do_nothing(*_: object) -> None:
    """Stands where something should be done."""


def journals_lie(patch: pytest.MonkeyPatch) -> None:
    """Soon after the bookies have begun, syncs of their journals make nothing safe."""
    honest = Storage.open

    async def open_and_lie(storage: Storage) -> None:
        await honest(storage)
        storage.world.later(HONEST_S, storage.lie)

    patch.setattr(Storage, "open", open_and_lie)


def answer_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Bookies say that an entry is durable when they begin to write it."""
    honest = Journal._write

    async def answer_and_write(journal: Journal, group: Group) -> None:
        waiters, group.waiters = group.waiters, []
        for waiter, argument in waiters:
            waiter(argument, True)  # noqa: FBT003 a Waiter
        await honest(journal, group)

    patch.setattr(Journal, "_write", answer_and_write)


def confirm_a_copy_early(patch: pytest.MonkeyPatch) -> None:
    """Writers confirm entries with one copy less than Qa, until their ensemble changes."""
    honest = Acknowledgements.__init__

    def count_fewer(acks: Acknowledgements, quorum: Quorum, last_confirmed: int = -1) -> None:
        honest(acks, quorum, last_confirmed)
        acks._enough = max(quorum.ack_quorum - 1, 1)

    patch.setattr(Acknowledgements, "__init__", count_fewer)


def believe_a_fence_that_is_being_written(patch: pytest.MonkeyPatch) -> None:
    """Of two who fence a ledger, the second one is told at once that the fence is durable."""
    honest = BookieStorage.fence

    def fence(storage: BookieStorage, ledger_id: int, master_key: bytes) -> Ledger:
        known = storage.ledgers.find(ledger_id)
        was_fenced = known is not None and known.is_fenced
        ledger = honest(storage, ledger_id, master_key)
        ledger.is_fence_durable |= was_fenced
        return ledger

    patch.setattr(BookieStorage, "fence", fence)


def believe_one_absence(patch: pytest.MonkeyPatch) -> None:
    """Recovery ends a ledger at the first entry that a single bookie does not have."""

    class BelievingSearch(EntrySearch):
        def __init__(self, write_set: tuple[int, ...], absences_proving: int) -> None:
            super().__init__(write_set, absences_proving)
            self._is_for_recovery = absences_proving < len(write_set)

        def absent(self, bookie: int) -> Verdict | None:
            honest = super().absent(bookie)
            return Verdict.ABSENT if self._is_for_recovery else honest

    patch.setattr(range_read, "EntrySearch", BelievingSearch)


def believe_enough_absences(patch: pytest.MonkeyPatch) -> None:
    """Recovery ends a ledger as BookKeeper's does: when enough bookies denied an entry, though
    there are others to be asked."""

    class BelievingSearch(EntrySearch):
        def absent(self, bookie: int) -> Verdict | None:
            honest = super().absent(bookie)
            return Verdict.ABSENT if self.is_proven else honest

    patch.setattr(range_read, "EntrySearch", BelievingSearch)


def count_the_replaced(patch: pytest.MonkeyPatch) -> None:
    """Writers count what a bookie had stored though another has taken its place."""
    patch.setattr(Acknowledgements, "forget", Acknowledgements.forgive)


def confirm_acknowledgements_early(patch: pytest.MonkeyPatch) -> None:
    """Brokers confirm acknowledgements that they have only in memory yet."""
    honest = Cursor.changed

    def change_and_tell(cursor: Cursor, on_durable: OnDurable | None = None) -> None:
        honest(cursor)
        if on_durable is not None:
            on_durable(None)

    patch.setattr(Cursor, "changed", change_and_tell)


def name_a_last_message_of_before(patch: pytest.MonkeyPatch) -> None:
    """Brokers answer the second question for a topic's last message as they did the first one, and
    the fourth as the third."""
    honest = Subscription.last_message
    answers: dict[int, tuple[Position, int]] = {}

    async def remember(
        subscription: Subscription, *, reads_compacted: bool = False
    ) -> tuple[Position, int]:
        before = answers.pop(id(subscription), None)
        if before is None:
            before = answers[id(subscription)] = await honest(
                subscription, reads_compacted=reads_compacted
            )
        return before

    patch.setattr(Subscription, "last_message", remember)


def let_the_last_owner_write_on(patch: pytest.MonkeyPatch) -> None:
    """Brokers that take a cursor over do not keep the one before from writing its record."""
    honest = CursorStore._take_over

    async def read_only(store: CursorStore, value: bytes) -> PositionRecord | None:
        with pytest.MonkeyPatch.context() as unwritten:
            unwritten.setattr(store, "_node", _Unwritten())
            return await honest(store, value)

    patch.setattr(CursorStore, "_take_over", read_only)
    patch.setattr(OwnRecord, "_check_session", _do_nothing)


class _Unwritten:
    """A record that says it was written."""

    async def write(self, value: bytes) -> None:
        del value


def name_the_ledger_before(patch: pytest.MonkeyPatch) -> None:
    """A cursor that could not name its new ledger names the former one when it tries again."""
    turn, name_ledger = CursorStore._turn_to_new_ledger, naming_record
    former: ContextVar[int | None] = ContextVar("former", default=None)

    async def turn_again(store: CursorStore, state: CursorState, payload: bytes) -> None:
        token = former.set(None if store._candidate is None else store.ledger_id)
        try:
            await turn(store, state, payload)
        finally:
            former.reset(token)

    def name_former(state: CursorState, ledger_id: int, *, last_active_ms: int) -> CursorRecord:
        known = former.get()
        named = ledger_id if known is None else known
        return name_ledger(state, named, last_active_ms=last_active_ms)

    patch.setattr(CursorStore, "_turn_to_new_ledger", turn_again)
    patch.setattr(cursor_store, "naming_record", name_former)


def compact_up_to_the_end(patch: pytest.MonkeyPatch) -> None:
    """A compaction takes what was published while it ran for compacted."""
    honest = TopicCompactor._put_in_force

    async def put_in_force(
        compaction: TopicCompactor, cursor: Cursor, ledger_id: int, horizon: Position
    ) -> None:
        del horizon
        await honest(compaction, cursor, ledger_id, compaction._log.chain.last_confirmed)

    patch.setattr(TopicCompactor, "_put_in_force", put_in_force)


class _EmptiedLedger(CompactedLedger):
    """A compacted ledger that seems to have no entries."""

    async def read(self, first: int, count_max: int, bytes_max: int) -> list[CompactedEntry]:
        del first, count_max, bytes_max
        return []


def forget_the_former_compaction(patch: pytest.MonkeyPatch) -> None:
    """A compaction reads what was published since the last one, and nothing that one left."""
    honest = TopicCompactor._source

    async def source(compaction: TopicCompactor) -> CompactionSource | None:
        found = await honest(compaction)
        if found is None or found.former is None:
            return found
        former = found.former
        emptied = _EmptiedLedger(former.ledgers, former.ledger_id, former.horizon)
        return replace(found, former=emptied)

    patch.setattr(TopicCompactor, "_source", source)


def forget_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    """Brokers that take a topic over do not learn which messages producers have sent."""

    async def learn_nothing(_: Deduplication, after: Position) -> int:
        del after
        return 0

    patch.setattr(Deduplication, "_replay", learn_nothing)


def hand_keys_over_at_once(patch: pytest.MonkeyPatch) -> None:
    """A key's new owner does not wait until the one before it is done with its messages."""
    patch.setattr(DrainingHashes, "reassigned", _do_nothing)


def fence_nobody(patch: pytest.MonkeyPatch) -> None:
    """An exclusive producer leaves those before it in the topic."""
    honest = Producers._check_access

    def check(producers: Producers, producer: Producer) -> None:
        if producer.access_mode is not AccessMode.EXCLUSIVE_WITH_FENCING:
            honest(producers, producer)

    patch.setattr(Producers, "_check_access", check)


def deliver_early(patch: pytest.MonkeyPatch) -> None:
    """Delayed messages are due a second before their time."""
    honest = DelayedMessageIndex.take_due

    def take_early(index: DelayedMessageIndex, now_ms: int, count_max: int) -> list[Position]:
        return honest(index, now_ms + 1000, count_max)

    patch.setattr(DelayedMessageIndex, "take_due", take_early)


def lose_segments(patch: pytest.MonkeyPatch) -> None:
    """The index of delayed messages is written down, and read back empty."""

    async def empty(_: BucketStore, ledger_id: int, number: int) -> list[DelayedIndex]:
        del ledger_id, number
        return []

    patch.setattr(BucketStore, "segment", empty)


def skip_segments_that_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """A segment of a bucket counts as read before it is, also where reading it fails."""
    honest = DelayedMessages._load_segment

    async def load(delayed: DelayedMessages, bucket: Bucket) -> None:
        number = bucket.next_segment
        try:
            await honest(delayed, bucket)
        finally:
            bucket.next_segment = max(bucket.next_segment, number + 1)

    patch.setattr(DelayedMessages, "_load_segment", load)


def count_refusals_twice(patch: pytest.MonkeyPatch) -> None:
    """A message that was refused once is said to have been refused twice."""
    honest = RedeliveryCounts.increment

    def twice(counts: RedeliveryCounts, position: Position) -> None:
        honest(counts, position)
        honest(counts, position)

    patch.setattr(RedeliveryCounts, "increment", twice)


def forget_refusals(patch: pytest.MonkeyPatch) -> None:
    """Brokers that take a topic over do not learn how often messages were refused."""
    patch.setattr(RedeliveryCounts, "restore", _do_nothing)


def write_counts_once(patch: pytest.MonkeyPatch) -> None:
    """How often messages were refused is written down a second after the first one was, and then
    no more."""
    honest = RedeliveryCountStore._keep

    def keep(counts: RedeliveryCountStore) -> None:
        timer = counts._timer
        honest(counts)
        counts._timer = timer

    patch.setattr(RedeliveryCountStore, "_keep", keep)


def forget_to_send_on(patch: pytest.MonkeyPatch) -> None:
    """Brokers that have read entries from bookies do not look which consumers can have them."""

    async def fetch(
        reader: CursorReader, position: Position, ask: Callable[[], Awaitable[None]]
    ) -> None:
        del position
        with suppress(StorageUnavailable):
            await ask()
        reader.is_reading = False

    patch.setattr(CursorReader, "_fetch", fetch)


def keep_consumers_of_closed_topics(patch: pytest.MonkeyPatch) -> None:
    """Topics that are unloaded do not tell their consumers."""
    patch.setattr(PersistentSubscriptions, "disconnect", _do_nothing)


def acknowledge_whole_ledgers(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement up to entry -1 of a ledger is taken for one of all its entries."""
    honest = Acknowledger.upto

    def upto(
        acknowledging: Acknowledger,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        if position.entry_id < 0:
            position = Position(position.ledger_id, INT64_MAX)
        honest(acknowledging, consumer, position, ack_set, on_durable)

    patch.setattr(Acknowledger, "upto", upto)


def forget_to_send_again(patch: pytest.MonkeyPatch) -> None:
    """A client that comes back takes for stored what it had sent."""
    patch.setattr(ProducerChannel, "_resume", _do_nothing)


def leave_connections_open(patch: pytest.MonkeyPatch) -> None:
    """A client that is closed leaves its connections to the broker."""

    async def forget(_: ConnectionPool) -> None:
        """Nothing is closed."""

    patch.setattr(ConnectionPool, "_close_parts", forget)


def found_by(tell: Callable[[int], object], first: int = 0) -> int:
    """The first seed from ``first`` on in which a checker objects. That a run gets stuck proves
    nothing."""
    for seed in range(first, first + SEEDS_TO_FIND):
        try:
            tell(seed)
        except InvariantViolated:
            return seed
        except (TimeoutError, SimulationError):
            continue
    pytest.fail("no seed found the bug that was planted")
