"""One subscription of a persistent topic: its cursor, and the consumers that share it.

The subscription connects its parts and passes events on to them. ``membership`` keeps the consumers
and the dispatcher that serves them; ``cursor_moves`` has what moves the cursor: acknowledgements,
seeks, skipped and expired messages. Delayed messages and redelivery counts are loaded only if they
are needed, because a broker may hold very many subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.delayed.bucket_store import has_buckets
from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.errors import InvalidRequest
from geminga_broker.managed_ledger.cache.read_ahead import ReadAhead
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.log_browser import last_message
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import LATEST, EntryId, Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_broker.policies.expiry import Expiry
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer, Sent
from geminga_broker.subscriptions.cursor_moves.acknowledger import Acknowledger
from geminga_broker.subscriptions.cursor_moves.cursor_reset import CursorReset
from geminga_broker.subscriptions.cursor_moves.expiry_monitor import ExpiryMonitor
from geminga_broker.subscriptions.cursor_moves.message_skipper import MessageSkipper
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.compacted_reader import CompactedReader
from geminga_broker.subscriptions.dispatch.key_shared_dispatcher import KeySharedDispatcher
from geminga_broker.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from geminga_broker.subscriptions.dispatch.single_dispatcher import SingleDispatcher
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import TrackingDispatcher
from geminga_broker.subscriptions.membership import AnyDispatcher, Membership
from geminga_broker.subscriptions.redelivery_count_store import (
    RedeliveryCountStore,
    has_stored_counts,
)
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_runtime.clock import Clock


class SubscriptionOwner(Protocol):
    """What a subscription asks of its topic."""

    @property
    def failover_delay_s(self) -> float:
        """How long after a change of the active consumer the next one is sent messages."""
        ...

    def subscription_left(self, subscription: Subscription) -> None:
        """The last consumer of a subscription that is not durable has left for good."""
        ...

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        """Delete the subscription and its cursor, if ``give_up`` lets it."""
        ...


@dataclass(frozen=True, slots=True)
class SubscriptionFigures:
    """What stats show of a subscription besides its cursor and its consumers.

    Counts begin when the topic is loaded; times are Unix times, 0 for never.
    """

    # When a consumer last acknowledged, and when one last granted permits.
    last_acknowledged_ms: int
    last_flow_ms: int
    # Delayed entries, as far as they are indexed, and roughly how much memory the index takes.
    delayed: int = 0
    delayed_bytes: int = 0
    # The buckets of that index, and the entries that are in memory with their delivery times.
    delayed_buckets: int = 0
    delayed_loaded: int = 0
    # Expired entries, when the last ones did, and how many do per second.
    expired: int = 0
    last_expired_ms: int = 0
    expiry_rate: float = 0.0


@dataclass(slots=True, weakref_slot=True, eq=False)
class Subscription:
    """Subscription ``cursor.name`` of ``topic``."""

    owner: SubscriptionOwner
    topic: str
    # The index of the topic; -1 if it is not a partition.
    partition: int
    managed_ledger: ManagedLedger
    cursor: Cursor
    clock: Clock
    # What consumers with ``readCompacted`` are served from.
    compacted_view: CompactedView | None = None
    name: str = field(init=False)
    membership: Membership = field(init=False)
    # Connected consumers: the membership's own list.
    consumers: list[Consumer] = field(init=False)
    acknowledger: Acknowledger = field(init=False)
    _last_flow_ms: int = field(default=0, init=False)
    _delayed_config: DelayedConfig = field(default_factory=DelayedConfig, init=False)
    # Each of these is None until it is first used.
    _compacted: CompactedReader | None = field(default=None, init=False)
    _delayed: DelayedMessages | None = field(default=None, init=False)
    _redelivery_counts: RedeliveryCountStore | None = field(default=None, init=False)
    _skipper: MessageSkipper | None = field(default=None, init=False)
    _expiry_monitor: ExpiryMonitor | None = field(default=None, init=False)
    _reset: CursorReset | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.name = self.cursor.name
        # The membership refers to the subscription weakly, the other way round it does not.
        self.membership = Membership(self)
        self.consumers = self.membership.consumers
        self.acknowledger = Acknowledger(
            self.cursor, self.membership, self.clock, self.managed_ledger.termination
        )

    # Figures

    @property
    def type(self) -> SubscriptionType | None:
        """The type of the consumers, connected or last; None before the first consumer."""
        return self.membership.type

    def sent(self) -> Sent:
        """What consumers were sent since the topic was loaded."""
        return self.membership.sent()

    def figures(self) -> SubscriptionFigures:
        """The figures of this moment."""
        figures = SubscriptionFigures(self.acknowledger.last_ms, self._last_flow_ms)
        # Most subscriptions have neither of the two parts.
        if self._delayed is not None:
            delayed = self._delayed.figures()
            figures = replace(
                figures,
                delayed=delayed.count,
                delayed_bytes=delayed.size_bytes,
                delayed_buckets=delayed.buckets,
                delayed_loaded=delayed.loaded,
            )
        skipper = self._skipper
        if skipper is not None:
            figures = replace(
                figures,
                expired=skipper.expired,
                last_expired_ms=skipper.last_expired_ms,
                expiry_rate=0.0 if skipper.expiry_meter is None else skipper.expiry_meter.rates[0],
            )
        return figures

    def tick(self, now_s: float, period_s: float) -> None:
        """A stats period ended: compute the expiry rate."""
        skipper = self._skipper
        if skipper is not None and skipper.expiry_meter is not None:
            skipper.expiry_meter.tick(now_s, skipper.expired, period_s=period_s)

    # Parts that are made on first use

    @property
    def delayed(self) -> DelayedMessages:
        """The index of the delayed messages."""
        if self._delayed is None:
            self._delayed = DelayedMessages(
                self.managed_ledger,
                self.cursor,
                self.clock,
                topic=self.topic,
                wake=self.entries_available,
            )
            # The policies may have come before the first delayed message.
            self._delayed.apply(self._delayed_config)
        return self._delayed

    @property
    def redelivery_counts(self) -> RedeliveryCountStore:
        """How often entries were given back, kept with the cursor."""
        if self._redelivery_counts is None:
            self._redelivery_counts = RedeliveryCountStore(self.cursor)
        return self._redelivery_counts

    @property
    def skipping(self) -> MessageSkipper:
        """Passes messages that no consumer has acknowledged."""
        if self._skipper is None:
            self._skipper = MessageSkipper(
                self.managed_ledger, self.cursor, self.clock, self.skipped
            )
        return self._skipper

    def hold_back(self, config: DelayedConfig) -> None:
        """Delay messages as ``config`` says from now on."""
        self._delayed_config = config
        if self._delayed is not None:
            self._delayed.apply(config)

    def new_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> AnyDispatcher:
        """A dispatcher without consumers for the type ``kind``."""
        if not kind.tracks_entries:
            return SingleDispatcher(
                self.managed_ledger,
                self.cursor,
                self.consumers,
                topic=self.topic,
                partition=self.partition,
                is_exclusive=kind is SubscriptionType.EXCLUSIVE,
                handover_delay_s=self.owner.failover_delay_s,
            )
        dispatcher: TrackingDispatcher
        if kind is SubscriptionType.SHARED:
            dispatcher = SharedDispatcher(self.managed_ledger, self.cursor, self.consumers)
        else:
            dispatcher = KeySharedDispatcher(
                self.managed_ledger, self.cursor, self.consumers, key_shared
            )
        # Only these types delay single messages, and count how often one was given back. The
        # subscription's own, not new ones: they outlive the dispatcher, which is dropped and made
        # anew as consumers leave and come.
        dispatcher.reader.delayed = self.delayed
        dispatcher.redeliveries = self.redelivery_counts.counts
        return dispatcher

    # Consumers

    async def admit(self, kind: SubscriptionType, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Make room for a consumer of type ``kind``, which ``connected`` then lets take part.

        Raises ``ConsumerBusy`` if the type or the number of consumers forbids it,
        ``ConsumerNotAssigned`` if the keys that ``key_shared`` asks for are taken, and
        ``StorageUnavailable`` if the index of delayed messages cannot be recovered.

        A new consumer is often the same client after a broken connection. So before it is refused,
        the client of the consumer in its way is pinged.
        """
        holder = self.membership.in_the_way(kind, key_shared)
        if holder is not None and not await holder.session.is_alive():
            await self.disconnect(holder)
        # Only the first time: it loads the index that an earlier owner has stored.
        if kind.tracks_entries:
            # Before the first read, which passes over the entries that the index holds.
            await self.delayed.recover()
        if self._reset is not None:
            await self._reset.wait_until_over()
        # No await from here on: the room is still there when the caller adds the consumer.
        self.membership.make_room(kind, key_shared)
        if self._reset is not None:
            self._reset.stop_waiting()

    def read_compacted(self, *, first: Position) -> None:
        """Let the admitted consumer read compacted; from ``first`` if nothing is acknowledged."""
        assert self.compacted_view is not None, "only topics with a log are compacted"
        dispatcher = self.membership.dispatcher
        assert isinstance(dispatcher, SingleDispatcher), "only one consumer reads compacted"
        if self._compacted is None:
            self._compacted = CompactedReader(
                self.compacted_view,
                first,
                self.managed_ledger.chain,
                self.cursor.acknowledged,
                ReadAhead(self.managed_ledger.reader.read_ahead_budget),
            )
        dispatcher.compacted = self._compacted

    def connected(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part: its client knows that it is subscribed."""
        self.membership.add(consumer)

    async def disconnect(self, consumer: Consumer) -> None:
        """Remove ``consumer``; what it held goes to the others."""
        self.membership.remove(consumer)
        self.end_if_deserted()

    def end_if_deserted(self) -> None:
        """End a subscription that is not durable and has no consumers, unless a consumer is
        expected back after a seek."""
        if self.cursor.is_durable or self.consumers:
            return
        if self._reset is None or self._reset.return_timer is None:
            self.owner.subscription_left(self)

    def close_consumers(self) -> None:
        """Tell every consumer to subscribe again."""
        self.membership.close()

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Add ``permits`` messages to what ``consumer`` may be sent."""
        # A client may grant any number: the sum stays a number that stats can show.
        consumer.permits = min(consumer.permits + permits, PERMITS_MAX)
        consumer.last_flow_ms = self._last_flow_ms = self.clock.wall_ms()
        self.entries_available()
        if self.managed_ledger.termination.at is not None:
            self.membership.tell_end()

    def entries_available(self) -> None:
        """Dispatch what can be sent now."""
        dispatcher = self.membership.dispatcher
        if dispatcher is not None:
            dispatcher.dispatch()

    def redeliver(self, consumer: Consumer, positions: Sequence[EntryId] | None) -> None:
        """Send again what ``consumer`` holds: ``positions``, or everything for None."""
        dispatcher = self.membership.dispatcher
        if dispatcher is not None:
            dispatcher.redeliver(consumer, positions)

    # Moving the cursor

    def _cursor_reset(self) -> CursorReset:
        if self._reset is None:
            self._reset = CursorReset(
                self.managed_ledger,
                self.cursor,
                self.membership,
                on_moved=self.moved,
                on_never_returned=self.end_if_deserted,
            )
        return self._reset

    async def seek(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver; of its batch only the messages whose bits
        ``remaining`` has (all of them if it is empty)."""
        # Before the move, which lets reading begin: the compacted ledger may have entries from
        # before the log's beginning, which no mark-delete position can name.
        if self._compacted is not None:
            self._compacted.first = position
        await self._cursor_reset().to_position(position, remaining)

    async def seek_time(self, time_ms: int) -> None:
        """Make the first message published at or after ``time_ms`` the next to deliver."""
        if self._compacted is not None:
            found = await self._compacted.view.first_published(time_ms)
            self._compacted.first = LATEST if found is None else found
        await self._cursor_reset().to_time(time_ms)

    def moved(self) -> None:
        """The cursor was reset: drop everything that was derived from its old place, including
        what an earlier owner stored with it."""
        if self._expiry_monitor is not None:
            self._expiry_monitor.moved()
        # An index or counts that an earlier owner stored are loaded only to be cleared.
        if self._delayed is not None or has_buckets(self.cursor.properties):
            self.delayed.clear()
        if self._redelivery_counts is not None or has_stored_counts(self.cursor):
            self.redelivery_counts.counts.clear()
            # No write by timer: the reset itself writes the cursor.
            self.redelivery_counts.finish()

    def passed_ledger(self) -> None:
        """The mark-delete position has left a ledger: it may be the last cursor to need it."""
        # Delayed messages and counts of passed entries are dropped here, and not for each entry.
        # The cursor calls this after its write, so ``needless_upto`` has moved.
        self.managed_ledger.trimmer.trim_soon()
        if self._delayed is not None:
            self._delayed.passed()
        if self._redelivery_counts is not None or has_stored_counts(self.cursor):
            self.redelivery_counts.refresh()

    async def expire(self, expiry: Expiry) -> None:
        """Pass messages that are older than the time to live. Raises ``StorageUnavailable``."""
        if not expiry.ttl_s:
            return
        if self._expiry_monitor is None:
            self._expiry_monitor = ExpiryMonitor(
                self.managed_ledger, self.cursor, self.clock, self.skipping
            )
        # Only tracking types delay messages. Before the first consumer the type is not known, and a
        # message that expired too early would be lost.
        kind = self.type
        holds_back = self._delayed_config.enabled and (kind is None or kind.tracks_entries)
        await self._expiry_monitor.older_than(
            expiry.ttl_s, spares_delayed=holds_back and expiry.delayed_from_delivery
        )

    def skip_acknowledged(self) -> None:
        """The cursor was moved on without the consumers: send no entry that it has passed."""
        dispatcher = self.membership.dispatcher
        if dispatcher is not None and self.cursor.mark_delete[1] >= 0:
            dispatcher.skip_acknowledged()

    def skipped(self, ids: list[EntryId] | None) -> None:
        """``skipping`` has passed ``ids``, or everything up to the mark-delete position."""
        # Only a tracking dispatcher knows of single entries; the others go by the mark-delete
        # position.
        tracker = self.membership.tracker
        if ids is not None and tracker is not None:
            tracker.skip(ids)
        else:
            self.skip_acknowledged()
        self.entries_available()
        if self.managed_ledger.termination.at is not None:
            self.membership.tell_end()

    async def last_message(self, *, reads_compacted: bool = False) -> tuple[Position, int]:
        """The newest entry, and the index of the last message in it (-1 if it is no batch).

        With ``reads_compacted``, the newest entry that compaction left, if it covers the whole log;
        position -1:-1 if none is left.
        """
        # Entries behind the compacted part are not compacted yet: then the log's newest counts.
        reader = self.managed_ledger.reader
        last = reader.readable_upto
        view = self.compacted_view
        if reads_compacted and view is not None and (last[1] < 0 or view.covers(last)):
            return await view.last_message()
        return await last_message(reader)

    # Ending

    async def close(self) -> None:
        """Store what is not stored yet, and close the cursor; the topic closes in good order."""
        if self._delayed is not None:
            # It writes its index to ledgers, and their ids into the properties of the cursor.
            await self._delayed.finish()
        if self._redelivery_counts is not None:
            self._redelivery_counts.finish()
        # Last, because it writes what the two above have noted with the cursor.
        await self.cursor.__aexit__(None, None, None)
        # These refer back to the subscription: without them, it is freed at once.
        self.membership.drop_dispatcher()
        self._delayed = self._skipper = self._expiry_monitor = self._reset = None

    async def delete_stored(self) -> None:
        """Delete the cursor, and first the buckets that it names, so that none is left behind."""
        if self._delayed is not None or has_buckets(self.cursor.properties):
            await self.delayed.delete()
        if self._redelivery_counts is not None:
            self._redelivery_counts.stop()
        await self.cursor.delete()

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription; only its sole consumer may, unless ``force``."""
        # Early, for a quick answer; ``give_up`` checks again when the topic's lock is held.
        self._check_alone(consumer, force=force)
        await self.owner.delete_subscription(self, consumer, force=force)

    def _check_alone(self, consumer: Consumer | None, *, force: bool) -> None:
        if not force and any(each is not consumer for each in self.consumers):
            raise InvalidRequest("Unconnected or shared consumer attempting to unsubscribe")

    def give_up(self, consumer: Consumer | None, *, force: bool) -> None:
        """Disconnect all consumers, because the topic deletes the subscription now.

        Raises ``InvalidRequest`` if another consumer subscribed while ``consumer`` waited for this.
        """
        self._check_alone(consumer, force=force)
        # Before the first consumer is removed: what it held would be sent to the others.
        self.membership.stop()
        if consumer is not None:
            self.membership.remove(consumer)  # it gets an answer instead of a close command
        self.close_consumers()
        if self._reset is not None:
            self._reset.stop_waiting()
