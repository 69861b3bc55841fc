"""The subscriptions of a persistent topic: created, found, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from geminga_broker.errors import ConsumerBusy, NotAllowed, SubscriptionNotFound, TopicFenced
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.ledger_chain.chain import LedgerChain
from geminga_broker.managed_ledger.positions import EARLIEST, LATEST, Entry, Position
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.dispatch import DISPATCH_FREELY
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.policies.expiry import Expiry
from geminga_broker.policies.inactivity import Inactivity
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.subscribe_request import SubscribeRequest
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.decisions.consumer_admission import (
    check_durability,
    check_name,
    check_stored_name,
)
from geminga_broker.topics.part import OwningTopic, TopicServices
from geminga_broker.topics.subscriptions.dispatch_limiters import DispatchLimiters
from geminga_broker.topics.subscriptions.subscription_registry import SubscriptionRegistry
from geminga_broker.topics.topic_compaction import (
    TopicCompaction,
    check_subscription,
)
from geminga_server.metrics import Meter


def _first_wanted(request: SubscribeRequest, chain: LedgerChain) -> Position:
    """The first entry that a new subscription wants.

    A start position beyond the end of the log, such as the latest, does not count: then the initial
    position does, as in upstream.
    """
    start = request.start_position
    if start is not None and start <= chain.last_confirmed:
        return start
    return EARLIEST if request.starts_at_earliest else LATEST


class PersistentSubscriptions(SubscriptionRegistry[Subscription]):
    """The subscriptions of a topic with a log; each has a cursor."""

    __slots__ = (
        "_broker_limiter",
        "_changing",
        "_dispatch_limiters",
        "_factory",
        "_is_closed",
        "_topic_name",
        "entry_meter",
    )

    # Its cursors count for backlog quotas; those of readers, which are not durable, do not.
    has_backlog = True

    def __init__(self, topic: OwningTopic, services: TopicServices) -> None:
        super().__init__(topic, services)
        # Rates of entries appended, of entries sent, and of those among them read from bookies. For
        # metrics, which upstream counts by entries. Messages are counted by ``Topic.meter``.
        self.entry_meter = Meter(services.clock.monotonic(), 0, 0, 0)
        # Kept for a subscription that is deleted after the topic was freed.
        self._topic_name = str(topic.name)
        # Set for good while the lock is held, by ``close``: what waits for the lock then does
        # nothing.
        self._is_closed = False
        self._factory = services.factory
        self._broker_limiter = services.broker_limiter
        # Made with the first limit: most topics have none.
        self._dispatch_limiters: DispatchLimiters | None = None
        # Held while a subscription is created or deleted; made with the first of them. Between
        # taking it and letting it go, ``subscriptions`` gains or loses one entry at most.
        self._changing: asyncio.Lock | None = None

    def apply(self, policies: EffectivePolicies) -> None:
        """Apply policies to present and new subscriptions."""
        # New subscriptions get all of this in ``_add``. No await in here: a subscription is added
        # before or after it, never in between.
        super().apply(policies)
        dispatching = policies.dispatching
        is_limited = dispatching != DISPATCH_FREELY or self._broker_limiter is not None
        if self._dispatch_limiters is None and is_limited:
            meter = self._topic.meter
            self._dispatch_limiters = DispatchLimiters(
                # The rates of the last stats period. The meter, not the topic: this function must
                # not keep the topic alive.
                lambda: (meter.rates[0], meter.rates[1]),
                self._clock,
                self._broker_limiter,
            )
        if self._dispatch_limiters is not None:
            self._dispatch_limiters.follow(dispatching, list(self.subscriptions.values()))
        for subscription in self.subscriptions.values():
            subscription.hold_back(policies.delayed)
            subscription.membership.limit(policies.unacknowledged)

    @property
    def failover_delay_s(self) -> float:
        """How long after a change of the active consumer the next one is sent messages."""
        return self._topic.policies.subscribing.failover_delay_s

    # Events of the topic

    async def adopt(self, cursor: Cursor) -> None:
        """Make a subscription for a stored cursor that no other part claims."""
        await self._add(cursor)

    def cursors(self) -> list[Cursor]:
        """The cursors of all subscriptions."""
        return [each.cursor for each in self.subscriptions.values()]

    def reads_from(self) -> Position | None:
        """The position from which the slowest subscription has still to read."""
        positions: list[Position] = []
        for each in self.subscriptions.values():
            dispatcher = each.membership.dispatcher
            # Without consumers, reading begins again after the mark-delete position.
            is_read = dispatcher is not None and each.consumers
            mark = each.cursor.mark_delete
            positions.append(dispatcher.wanted_from if dispatcher and is_read else mark)
        return min(positions, default=None)

    def run_appended(
        self, ledger_id: int, entries: Sequence[Entry], batch: Sequence[AppendRequest]
    ) -> None:
        """Let every subscription dispatch the run."""
        del ledger_id, entries, batch
        # HOT: once for each run and subscription.
        for subscription in self.subscriptions.values():
            subscription.entries_available()

    async def expire(self, expiry: Expiry) -> None:
        """Let every subscription pass messages that are too old. Raises ``StorageUnavailable``."""
        for subscription in list(self.subscriptions.values()):
            # It may have been deleted while an earlier one was awaited. By identity: another one of
            # its name has a cursor of its own.
            if self.subscriptions.get(subscription.name) is subscription:
                await subscription.expire(expiry)

    def cursors_moved(self) -> None:
        """Send no entry that was passed; consumers that held some have room for others."""
        for subscription in self.subscriptions.values():
            subscription.skip_acknowledged()
            subscription.entries_available()

    def is_used(self, rule: Inactivity) -> bool:
        """Whether a subscription exists, or is being created or deleted. If the rule deletes topics
        with subscriptions, only a backlog keeps the topic."""
        # A subscription that is being created is not in the mapping yet. The topic would be deleted
        # under its first consumer.
        if self._changing is not None and self._changing.locked():
            return True
        # Upstream's ``delete_when_subscriptions_caught_up``.
        if rule.takes_subscriptions:
            return any(each.cursor.backlog_entries for each in self.subscriptions.values())
        return bool(self.subscriptions)

    def tick(self, now_s: float, period_s: float) -> None:
        """Compute the rates of consumers, of entries, and of expired messages."""
        super().tick(now_s, period_s)
        subscriptions = self.subscriptions.values()
        sent = [each.sent() for each in subscriptions]
        self.entry_meter.tick(
            now_s,
            self._topic.managed_ledger.entries_added,
            sum(each.entries for each in sent),
            sum(each.entries_fetched for each in sent),
        )
        for each in subscriptions:
            each.tick(now_s, period_s)

    # Subscribing

    async def subscribe(self, request: SubscribeRequest) -> Subscription:
        """The subscription, new or existing, with room for one more consumer.

        The checks and their order are upstream's. Raises ``BrokerError``.
        """
        # Checks that wait for nothing come first; they need no repeating, as they concern the
        # request alone.
        request.check()
        check_subscription(request.subscription)
        # Not for types of which several consumers share the messages.
        if request.reads_compacted and request.type.tracks_entries:
            raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
        check_name(request.subscription, is_reserved=self._topic.claims(request.subscription))
        self._admission.check(request, self._clock.monotonic())
        # Repeated only if the subscription was deleted while room was made for the consumer: then
        # it is created anew, as if the client had come a moment later.
        while True:
            self._topic.check_open()
            subscription = self.subscriptions.get(request.subscription)
            if subscription is None:
                async with self._change():
                    # While it waited for the lock, another client may have created it. Its checks
                    # are those of an existing subscription then.
                    self._topic.check_open()
                    subscription = self.subscriptions.get(request.subscription)
                    if subscription is None:
                        subscription = await self._create(request)
            try:
                is_ready = await self._admit(request, subscription)
            except BaseException:
                # One that was created for this consumer alone goes again. Only if it is not
                # durable: a durable one stays, as in upstream.
                subscription.end_if_deserted()
                raise
            if is_ready:
                if request.reads_compacted:
                    chain = self._topic.managed_ledger.chain
                    subscription.read_compacted(first=_first_wanted(request, chain))
                return subscription

    async def _admit(self, request: SubscribeRequest, subscription: Subscription) -> bool:
        """Make room for one more consumer; False if the subscription was deleted meanwhile."""
        # Before anything of the subscription is changed: the ping and ``admit`` may close
        # consumers.
        check_durability(
            is_durable=subscription.cursor.is_durable, wants_durable=request.is_durable
        )
        try:
            self._check_consumers(request, len(subscription.consumers))
        except ConsumerBusy:
            # A consumer of the same name may be the same client, whose former connection broke
            # without a word: ping it before the new one is refused. The others are left alone:
            # whether their clients live does not concern this one.
            for each in list(subscription.consumers):
                if each.name == request.consumer.name and not await each.session.is_alive():
                    await subscription.disconnect(each)
        # Waits for a seek that is under way, and for the index of delayed messages. Its last step,
        # which makes the room, and the caller's adding of the consumer lie in one turn.
        await subscription.admit(request.type, request.key_shared)
        # Meanwhile the topic may have been closed, the subscription deleted, or another consumer
        # added: check again.
        self._topic.check_open()
        # What ``admit`` has done then concerns a subscription that is gone.
        if self.subscriptions.get(request.subscription) is not subscription:
            return False
        self._check_consumers(request, len(subscription.consumers))
        return True

    # Creating

    def _change(self) -> asyncio.Lock:
        if self._changing is None:
            self._changing = asyncio.Lock()
        return self._changing

    async def _create(self, request: SubscribeRequest) -> Subscription:
        """Create the subscription that a consumer asks for. The lock is held."""
        # Checked under the lock, with the numbers of this moment: of two new subscriptions that
        # come at once, the limit may allow one.
        self._admission.check_use(is_durable=request.is_durable)
        self._admission.check_subscriptions(len(self.subscriptions))
        self._check_consumers(request, 0)
        chain = self._topic.managed_ledger.chain
        if request.is_durable:
            check_stored_name(request.subscription)
            # The log must have a ledger: a cursor is stored with a position in it.
            await self._topic.managed_ledger.begin()
            at = chain.before_first if request.starts_at_earliest else chain.last_confirmed
            # A client that leaves meanwhile cancels this. The stored cursor is then found by the
            # next attempt, or becomes a subscription when the topic is loaded.
            cursor = await self._factory.create_cursor(
                self._topic.managed_ledger.name, request.subscription, chain, at, request.properties
            )
        else:
            at = chain.previous_of(chain.readable_from(_first_wanted(request, chain)))
            cursor = self._factory.volatile_cursor(request.subscription, chain, at)
        return await self._add(cursor)

    async def create(
        self,
        name: str,
        *,
        from_earliest: bool = False,
        start: Position | None = None,
        properties: Mapping[str, str] | None = None,
        is_replicated: bool = False,
    ) -> bool:
        """Create a durable subscription without a consumer; False if it exists.

        Its first message is the one at ``start``; without that the next one to be published, or the
        oldest one (``from_earliest``).
        """
        # No consumer subscribes here: of the policies only the limit on the number of subscriptions
        # applies.
        check_subscription(name)
        async with self._change():
            self._topic.check_open()
            if name in self.subscriptions:
                return False
            check_name(name, is_reserved=self._topic.claims(name))
            check_stored_name(name)
            self._admission.check_subscriptions(len(self.subscriptions))
            await self._topic.managed_ledger.begin()
            chain = self._topic.managed_ledger.chain
            at = chain.before_first if from_earliest else chain.last_confirmed
            if start is not None:
                at = chain.previous_of(chain.readable_from(start))
            cursor = await self._factory.create_cursor(
                self._topic.managed_ledger.name,
                name,
                chain,
                at,
                properties or {},
                is_replicated=is_replicated,
            )
            await self._add(cursor)
            return True

    async def _add(self, cursor: Cursor) -> Subscription:
        """Open ``cursor``, and add its subscription."""
        topic, policies = self._topic, self._topic.policies
        # Before the subscription is in the mapping, where clients find it: no message is
        # acknowledged on a cursor that is not open.
        await topic.enter_cursor(cursor)
        subscription = Subscription(
            self,
            str(topic.name),
            topic.name.partition_index,
            topic.managed_ledger,
            cursor,
            self._clock,
            topic.part(TopicCompaction).view,
        )
        subscription.membership.limit(policies.unacknowledged)
        subscription.hold_back(policies.delayed)
        if self._dispatch_limiters is not None:
            self._dispatch_limiters.limit(subscription)
        # Instead of the trimmer, which ``enter_cursor`` has set: it calls the trimmer as well.
        cursor.on_ledger_left = subscription.passed_ledger
        self.subscriptions[cursor.name] = subscription
        return subscription

    def named(self, name: str) -> Subscription:
        """The subscription of this name. Raises ``SubscriptionNotFound``."""
        try:
            return self.subscriptions[name]
        except KeyError:
            raise SubscriptionNotFound(name, str(self._topic.name)) from None

    # Deleting

    def subscription_left(self, subscription: Subscription) -> None:
        """End a subscription that is not durable: its last consumer has left."""
        # Closing the topic has closed all cursors already. By identity: a client may have
        # subscribed by the same name meanwhile.
        if not self._is_closed and self.subscriptions.get(subscription.name) is subscription:
            self._take_out(subscription)
            self._topic.spawn(
                subscription.cursor.__aexit__(None, None, None), name=f"forget {subscription.name}"
            )

    def _take_out(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.name]
        if self._dispatch_limiters is not None:
            self._dispatch_limiters.forget(subscription)
        # An inactive topic is counted from the moment when its last subscription went.
        self._topic.last_used_s = self._clock.monotonic()

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        """Delete a subscription and its cursor; ``consumer`` is the one that asks for it."""
        async with self._change():
            if self._is_closed:
                raise TopicFenced(self._topic_name)
            # It may have been deleted while this waited for the lock. Then there is nothing to do,
            # and the client that asked second gets the same answer.
            if self.subscriptions.get(subscription.name) is subscription:
                # Raises while nothing is changed yet, if another consumer has come.
                subscription.give_up(consumer, force=force)
                # From here on no client finds it, and a new one of its name may be created once the
                # lock is free.
                self._take_out(subscription)
                # A crash in here leaves the cursor, with or without what it names. The next owner
                # makes it a subscription again; the client, which got no answer, repeats its
                # request.
                try:
                    await subscription.delete_stored()
                finally:
                    await subscription.cursor.__aexit__(None, None, None)

    # Ending

    async def close(self) -> None:
        """Store what is not stored yet, and close the cursors."""
        async with self._change():
            # A deletion that waits for the lock must not begin any more. One that is under way ends
            # first: the lock is held.
            self._is_closed = True
            if self._dispatch_limiters is not None:
                for each in self.subscriptions.values():
                    self._dispatch_limiters.forget(each)
                self._dispatch_limiters.close()
            # Side by side: each writes its cursor with requests of its own to bookies and
            # ZooKeeper.
            await asyncio.gather(*(each.close() for each in self.subscriptions.values()))

    async def delete(self) -> None:
        """Delete the cursors of all subscriptions; no client is connected any more."""
        async with self._change():
            for subscription in list(self.subscriptions.values()):
                # The mapping stays as it is: ``close`` follows, which closes the cursors, and then
                # has nothing to write.
                await subscription.delete_stored()
