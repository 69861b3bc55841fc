"""One subscription of a persistent topic: its cursor, and those who consume at it.

Who takes part is kept by ``membership``, what they acknowledge goes through ``acknowledging``, and
``resetting`` moves the cursor while the consumers are away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from geminga_broker.compaction.compacted_view import CompactedView
from geminga_broker.delayed.bucket_store import has_buckets
from geminga_broker.delayed.messages import DelayedMessages
from geminga_broker.errors import InvalidRequest
from geminga_broker.managed_ledger.browsing import last_message
from geminga_broker.managed_ledger.cursors.cursor import Cursor, OnDurable
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import LATEST, AckedEntry, EntryId, Position
from geminga_broker.policies.delayed import DelayedConfig
from geminga_broker.policies.dispatching import Counting
from geminga_broker.policies.expiry import Expiry
from geminga_broker.policies.unacknowledged import UnacknowledgedLimits
from geminga_broker.subscriptions.acknowledging import Acknowledging
from geminga_broker.subscriptions.compacted_reading import CompactedReading
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer
from geminga_broker.subscriptions.dispatcher import Dispatcher
from geminga_broker.subscriptions.dispatchers import new_dispatcher
from geminga_broker.subscriptions.distribution.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.expiring import Expiring
from geminga_broker.subscriptions.kept_counts import KeptCounts, has_kept_counts
from geminga_broker.subscriptions.membership import Membership
from geminga_broker.subscriptions.rate_limiter import RateLimiter
from geminga_broker.subscriptions.resetting import Resetting
from geminga_broker.subscriptions.single_dispatcher import SingleDispatcher
from geminga_broker.subscriptions.skipping import Skipping
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_runtime.clock import Clock


class SubscriptionOwner(Protocol):
    """The topic a subscription belongs to."""

    @property
    def failover_delay_s(self) -> float:
        """How long after a change of the active consumer the next one is sent messages."""
        ...

    def subscription_left(self, subscription: Subscription) -> None:
        """The last consumer of a subscription that is not durable has gone for good."""
        ...

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        """Forget the subscription and its cursor, if ``give_up`` lets it."""
        ...


class Subscription:
    """Subscription ``cursor.name`` of a topic; ``partition`` is -1 for a topic that is none."""

    def __init__(
        self,
        owner: SubscriptionOwner,
        topic: str,
        partition: int,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        clock: Clock,
        compacted_view: CompactedView | None = None,
    ) -> None:
        self.cursor = cursor
        self.last_flow_ms = 0
        self._owner = owner
        self._managed_ledger = managed_ledger
        self._clock = clock
        self._compacted_view = compacted_view
        # Where those read who read compacted; None until one does.
        self._compacted: CompactedReading | None = None
        self._topic = topic
        self._partition = partition
        self._delayed: DelayedMessages | None = None
        self._delayed_config = DelayedConfig()
        self._kept_counts: KeptCounts | None = None
        self.membership = Membership(self)
        self._acknowledging = Acknowledging(cursor, self.membership, clock)
        # None until they are needed: there may be very many subscriptions.
        self._skipping: Skipping | None = None
        self._expiring: Expiring | None = None
        self._resetting: Resetting | None = None

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self.cursor.name

    @property
    def mark_delete(self) -> Position:
        """Everything up to here is acknowledged."""
        return self.cursor.mark_delete

    @property
    def backlog_entries(self) -> int:
        """How many entries are still to be acknowledged."""
        return self.cursor.backlog_entries

    @property
    def type(self) -> SubscriptionType | None:
        """That of its consumers, or of the last it had; None before the first."""
        return self.membership.type

    @property
    def dispatcher(self) -> Dispatcher | None:
        """What serves the consumers; None before the first."""
        return self.membership.dispatcher

    @property
    def consumers(self) -> list[Consumer]:
        """Connected consumers."""
        return self.membership.consumers

    @property
    def messages_out(self) -> int:
        """Messages sent since the topic was loaded."""
        return self.membership.messages_out

    @property
    def bytes_out(self) -> int:
        """Bytes sent since the topic was loaded."""
        return self.membership.bytes_out

    @property
    def entries_sent(self) -> int:
        """Entries sent, or passed over as acknowledged, since the topic was loaded."""
        return self.membership.entries_sent

    @property
    def entries_fetched(self) -> int:
        """Entries read from bookies since the topic was loaded."""
        return self.membership.entries_fetched

    @property
    def last_acknowledged_ms(self) -> int:
        """When something was last acknowledged; 0 for not since the topic was loaded."""
        return self._acknowledging.last_ms

    # Delayed messages

    @property
    def delayed(self) -> DelayedMessages:
        """Its delayed messages; made when they are first asked for, for most have none."""
        if self._delayed is None:
            self._delayed = DelayedMessages(
                self._managed_ledger,
                self.cursor,
                self._clock,
                topic=self._topic,
                wake=self.entries_available,
            )
            self._delayed.config = self._delayed_config
        return self._delayed

    def hold_back(self, config: DelayedConfig) -> None:
        """How messages are held back from now on."""
        self._delayed_config = config
        if self._delayed is not None:
            self._delayed.config = config

    @property
    def delayed_count(self) -> int:
        """How many entries are held back, as far as that is known yet."""
        return 0 if self._delayed is None else self._delayed.count

    @property
    def delayed_bytes(self) -> int:
        """How much memory the index of delayed messages takes, about."""
        return 0 if self._delayed is None else self._delayed.size_bytes

    @property
    def delayed_buckets(self) -> int:
        """Into how many buckets the index of delayed messages is cut."""
        return 0 if self._delayed is None else self._delayed.bucket_count

    @property
    def delayed_loaded(self) -> int:
        """How many delayed messages are in memory with their times."""
        return 0 if self._delayed is None else self._delayed.loaded_count

    # What is noted of single messages

    @property
    def kept_counts(self) -> KeptCounts:
        """How often its messages were given back; made where consumers share them."""
        if self._kept_counts is None:
            self._kept_counts = KeptCounts(self.cursor)
        return self._kept_counts

    def new_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Dispatcher:
        """What serves consumers of type ``kind``."""
        return new_dispatcher(
            kind,
            key_shared,
            managed_ledger=self._managed_ledger,
            cursor=self.cursor,
            topic=self._topic,
            partition=self._partition,
            delayed=lambda: self.delayed,
            redeliveries=lambda: self.kept_counts.counts,
            failover_delay_s=self._owner.failover_delay_s,
        )

    def passed_ledger(self) -> None:
        """The mark-delete position has left a ledger, which may be one that nobody needs."""
        self._managed_ledger.trim_soon()
        if self._delayed is not None:
            self._delayed.passed()
        if self._kept_counts is not None or has_kept_counts(self.cursor):
            self.kept_counts.refresh()

    def moved(self) -> None:
        """Everything is read anew; what an owner before has noted as well."""
        if self._expiring is not None:
            self._expiring.moved()
        if self._delayed is not None or has_buckets(self.cursor.properties):
            self.delayed.clear()
        if self._kept_counts is not None or has_kept_counts(self.cursor):
            self.kept_counts.moved()

    # Consumers

    async def admit(self, kind: SubscriptionType, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Make room for a consumer of type ``kind``, which ``connected`` then lets take part.

        Raises ``ConsumerBusy`` where type or number forbid it, ``ConsumerNotAssigned`` where the
        keys that ``key_shared`` asks for do, ``StorageUnavailable`` where it cannot be found out
        which messages are delayed.

        A consumer that stands in the way and whose client is gone without a word is asked for a
        sign of life before the new one, often the same client after a broken connection, is
        refused.
        """
        holder = self.membership.in_the_way(kind, key_shared)
        if holder is not None and not await holder.session.is_alive():
            await self.disconnect(holder)
        if kind.tracks_entries:
            await self.delayed.recover()
        if self._resetting is not None:
            await self._resetting.wait_until_over()
        self.membership.make_room(kind, key_shared)
        self._stop_waiting()

    def limit_unacknowledged(self, limits: UnacknowledgedLimits) -> None:
        """So much may be with consumers from now on."""
        self.membership.limit(limits)

    def throttle(self, gates: Sequence[RateLimiter], counting: Counting) -> None:
        """What is sent passes these from now on, where there are any."""
        self.membership.pass_through(gates, counting)

    def read_compacted(self, *, first: Position) -> None:
        """The consumer that was admitted reads compacted, from ``first`` where nothing was
        acknowledged yet."""
        assert self._compacted_view is not None, "only topics with a log are compacted"
        assert isinstance(self.dispatcher, SingleDispatcher), "only one consumer reads compacted"
        if self._compacted is None:
            self._compacted = CompactedReading(
                self._compacted_view,
                self._managed_ledger.chain,
                self.cursor.acknowledged,
                self._managed_ledger.reader.read_ahead_budget,
                first=first,
            )
        self.dispatcher.compacted = self._compacted

    def connected(self, consumer: Consumer) -> None:
        """The client knows that it is subscribed: let it take part."""
        self.membership.add(consumer)

    async def disconnect(self, consumer: Consumer) -> None:
        """``consumer`` is gone; what it held goes to the others."""
        self.membership.remove(consumer)
        self.end_if_deserted()

    def end_if_deserted(self) -> None:
        """One that is not durable ends with its last consumer, but for one that comes back."""
        if self.cursor.is_durable or self.consumers:
            return
        if self._resetting is None or not self._resetting.is_return_awaited:
            self._owner.subscription_left(self)

    def close_consumers(self) -> None:
        """Tell every consumer to subscribe again."""
        self.membership.close()

    def flow(self, consumer: Consumer, permits: int) -> None:
        """``consumer`` has room for ``permits`` more messages."""
        consumer.permits = min(consumer.permits + permits, PERMITS_MAX)
        consumer.last_flow_ms = self.last_flow_ms = self._clock.wall_ms()
        self.entries_available()
        if self._managed_ledger.termination.at is not None:
            self.tell_end()

    def tell_end(self) -> None:
        """Tell consumers, once each, where all that will ever come is acknowledged."""
        if self.dispatcher is not None:
            self.dispatcher.tell_end()

    def entries_available(self) -> None:
        """Look whether something can be sent."""
        dispatcher = self.membership.dispatcher
        if dispatcher is not None:
            dispatcher.dispatch()

    def redeliver(self, consumer: Consumer, positions: Sequence[EntryId] | None) -> None:
        """Send again what ``consumer`` holds."""
        if self.dispatcher is not None:
            self.dispatcher.redeliver(consumer, positions)

    # Acknowledgements

    def acknowledge(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Acknowledge single entries; unknown or already acknowledged ones change nothing."""
        self._acknowledging.single(consumer, entries, on_durable)
        if self._managed_ledger.termination.at is not None:
            self.tell_end()

    def acknowledge_entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """``acknowledge`` for whole entries without a receipt, of which clients send thousands."""
        self._acknowledging.entries(consumer, ids)
        if self._managed_ledger.termination.at is not None:
            self.tell_end()

    def acknowledge_upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Acknowledge everything before ``position``, and of its own entry what ``ack_set`` leaves
        out (all of it where that is empty)."""
        self._acknowledging.upto(consumer, position, ack_set, on_durable)
        if self._managed_ledger.termination.at is not None:
            self.tell_end()

    # Moving

    def _moving(self) -> Resetting:
        if self._resetting is None:
            self._resetting = Resetting(self._managed_ledger, self.cursor, self)
        return self._resetting

    def _stop_waiting(self) -> None:
        """For a consumer to come back, after a move."""
        if self._resetting is not None:
            self._resetting.stop_waiting()

    async def seek(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """Make ``position`` the next entry to deliver, and of its batch what ``remaining`` holds
        (all of it where that is empty)."""
        if self._compacted is not None:
            self._compacted.first = position
        await self._moving().to_position(position, remaining)

    async def seek_time(self, time_ms: int) -> None:
        """Make the first message published at or after ``time_ms`` the next to deliver."""
        if self._compacted is not None:
            found = await self._compacted.view.first_published(time_ms)
            self._compacted.first = LATEST if found is None else found
        await self._moving().to_time(time_ms)

    # Passing what nobody has acknowledged

    @property
    def skipping(self) -> Skipping:
        """Lets it pass messages; made when the first are."""
        if self._skipping is None:
            self._skipping = Skipping(self._managed_ledger, self.cursor, self._clock, self._skipped)
        return self._skipping

    @property
    def expired_count(self) -> int:
        """How many entries grew too old, since the topic was loaded."""
        return 0 if self._skipping is None else self._skipping.expired

    @property
    def last_expired_ms(self) -> int:
        """When any were last found; 0 for never."""
        return 0 if self._skipping is None else self._skipping.last_expired_ms

    @property
    def expiry_rate(self) -> float:
        """How many entries a second grow too old."""
        return 0.0 if self._skipping is None else self._skipping.expiry_rate

    def tick(self, now_s: float, period_s: float) -> None:
        """Once a stats period: renew that rate."""
        if self._skipping is not None:
            self._skipping.tick(now_s, period_s)

    async def expire(self, expiry: Expiry) -> None:
        """Pass what has grown too old. Raises ``StorageUnavailable``."""
        if not expiry.ttl_s:
            return
        if self._expiring is None:
            self._expiring = Expiring(self._managed_ledger, self.cursor, self._clock, self.skipping)
        # Before the first consumer comes, nobody knows whether it will be one that has to wait.
        kind = self.type
        holds_back = self._delayed_config.enabled and (kind is None or kind.tracks_entries)
        await self._expiring.older_than(
            expiry.ttl_s, spares_delayed=holds_back and expiry.delayed_from_delivery
        )

    def skip_acknowledged(self) -> None:
        """The cursor was moved on by somebody else: what it has passed is not sent any more."""
        if self.dispatcher is not None and self.mark_delete[1] >= 0:
            self.dispatcher.skip_acknowledged()

    def _skipped(self, ids: list[EntryId] | None) -> None:
        if ids is None:
            self.skip_acknowledged()
        elif self.dispatcher is not None:
            self.dispatcher.skip(ids)
        self.entries_available()
        if self._managed_ledger.termination.at is not None:
            self.tell_end()

    # Asking and ending

    async def last_message(self, *, reads_compacted: bool = False) -> tuple[Position, int]:
        """The newest entry, and the index of the last message in it (-1 where it is no batch).

        For who reads compacted it is of what was left; position -1:-1 where nothing was.
        """
        reader = self._managed_ledger.reader
        last = reader.readable_upto
        view = self._compacted_view
        if reads_compacted and view is not None and (last[1] < 0 or view.covers(last)):
            return await view.last_message()
        return await last_message(reader)

    async def close(self) -> None:
        """Write down what is not stored yet: the topic closes in good order."""
        if self._delayed is not None:
            await self._delayed.finish()
        if self._kept_counts is not None:
            self._kept_counts.finish()
        await self.cursor.__aexit__(None, None, None)
        # What knows the subscription: without it, it is freed at once.
        self.membership.end()
        self._delayed = self._skipping = self._expiring = self._resetting = None

    async def delete_stored(self) -> None:
        """Forget the cursor for good, and before it what it names: nothing is left behind."""
        if self._delayed is not None or has_buckets(self.cursor.properties):
            await self.delayed.delete()
        if self._kept_counts is not None:
            self._kept_counts.stop()
        await self.cursor.delete()

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription; only its sole consumer may, unless ``force``."""
        self._check_alone(consumer, force=force)
        await self._owner.delete_subscription(self, consumer, force=force)

    def _check_alone(self, consumer: Consumer | None, *, force: bool) -> None:
        if not force and any(each is not consumer for each in self.consumers):
            raise InvalidRequest("Unconnected or shared consumer attempting to unsubscribe")

    def give_up(self, consumer: Consumer | None, *, force: bool) -> None:
        """The topic deletes the subscription now: let its consumers go.

        Raises ``InvalidRequest`` where another consumer came while ``consumer`` waited for this.
        """
        self._check_alone(consumer, force=force)
        self.membership.stop()
        if consumer is not None:
            self.membership.remove(consumer)  # it is answered, not told to come back
        self.close_consumers()
        self._stop_waiting()
