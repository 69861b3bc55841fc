"""The subscriptions of a persistent topic: how they come, are found, and go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol
from weakref import proxy

from geminga_broker.errors import ConsumerBusy, SubscriptionNotFound, TopicFenced
from geminga_broker.log.chain import LedgerChain
from geminga_broker.log.cursor import Cursor
from geminga_broker.log.logs import Logs
from geminga_broker.log.managed_ledger import ManagedLedger
from geminga_broker.log.positions import EARLIEST, LATEST, Position
from geminga_broker.policies.dispatching import DISPATCH_FREELY, DispatchPolicies
from geminga_broker.policies.effective import EffectivePolicies
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.gate import Gate
from geminga_broker.subscriptions.subscription import Subscription
from geminga_broker.topics.compacting import Compacting, check_read_compacted, check_subscription
from geminga_broker.topics.consuming.admission import Admission, check_durability, check_name
from geminga_broker.topics.consuming.throttling import Throttling
from geminga_broker.topics.producing.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR
from geminga_broker.topics.topic import SubscribeRequest
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock


def _first_wanted(request: SubscribeRequest, chain: LedgerChain) -> Position:
    """The first entry that is wanted of a subscription that is new; for one that is beyond the end,
    as the latest is, the initial position counts, as upstream has it."""
    start = request.start_position
    if start is not None and start <= chain.last_confirmed:
        return start
    return EARLIEST if request.starts_at_earliest else LATEST


class SubscribedTopic(Protocol):
    """The topic, as far as its subscriptions must know it."""

    name: TopicName
    managed_ledger: ManagedLedger
    compacting: Compacting
    last_used_s: float

    @property
    def publish_rates(self) -> tuple[float, float]:
        """Messages and bytes a second, in the last stats period."""
        ...

    def check_open(self) -> None:
        """Raise ``TopicFenced`` where the topic takes nobody any more."""
        ...

    async def enter_cursor(self, cursor: Cursor) -> None:
        """Tie a cursor to the topic and open it."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object], *, name: str) -> object:
        """Do ``work`` in the background while the topic is open."""
        ...


class Subscribing:
    """Of one topic. ``apply`` comes first and whenever its policies change."""

    __slots__ = (
        "_admission",
        "_broker_gate",
        "_changing",
        "_clock",
        "_is_closed",
        "_logs",
        "_policies",
        "_throttling",
        "_topic",
        "_topic_name",
        "subscriptions",
    )

    def __init__(
        self,
        topic: SubscribedTopic,
        logs: Logs,
        clock: Clock,
        policies: EffectivePolicies,
        broker_gate: Gate | None = None,
    ) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._topic: SubscribedTopic = proxy(topic)
        self._topic_name = str(topic.name)
        self._is_closed = False
        self._logs = logs
        self._clock = clock
        self._policies = policies
        self._broker_gate = broker_gate
        self._throttling: Throttling | None = None  # most topics have no limit
        self._admission = Admission(self._topic_name, policies.subscribing)
        # Guards which subscriptions exist while one is being created or deleted; None before that.
        self._changing: asyncio.Lock | None = None

    def apply(self, policies: EffectivePolicies) -> None:
        """From now on these hold, for the subscriptions that are there and those to come."""
        self._policies = policies
        self._admission.policies = policies.subscribing
        self._throttle(policies.dispatching)
        for subscription in self.subscriptions.values():
            subscription.hold_back(policies.delayed)
            subscription.limit_unacknowledged(policies.unacknowledged)

    def _throttle(self, policies: DispatchPolicies) -> None:
        is_limited = policies != DISPATCH_FREELY or self._broker_gate is not None
        if self._throttling is None and is_limited:
            self._throttling = Throttling(self._topic, self._clock, self._broker_gate)
        if self._throttling is not None:
            self._throttling.follow(policies, list(self.subscriptions.values()))

    @property
    def failover_delay_s(self) -> float:
        """How long after a change of the active consumer the next one is sent messages."""
        return self._policies.subscribing.failover_delay_s

    @property
    def expires(self) -> bool:
        """Whether messages grow too old here."""
        return self._policies.expiry.ttl_s > 0

    async def expire(self) -> None:
        """Let subscriptions pass what has grown too old. Raises ``StorageUnavailable``."""
        for subscription in list(self.subscriptions.values()):
            if self.subscriptions.get(subscription.name) is subscription:
                await subscription.expire(self._policies.expiry)

    async def add(self, cursor: Cursor) -> Subscription:
        """The subscription of a cursor that is stored: when the topic is opened."""
        topic = self._topic
        await topic.enter_cursor(cursor)
        subscription = Subscription(
            self,
            str(topic.name),
            topic.name.partition_index,
            topic.managed_ledger,
            cursor,
            self._clock,
            topic.compacting.view,
        )
        subscription.limit_unacknowledged(self._policies.unacknowledged)
        subscription.hold_back(self._policies.delayed)
        if self._throttling is not None:
            self._throttling.hold(subscription)
        cursor.on_ledger_left = subscription.passed_ledger
        self.subscriptions[cursor.name] = subscription
        return subscription

    def _change(self) -> asyncio.Lock:
        if self._changing is None:
            self._changing = asyncio.Lock()
        return self._changing

    async def subscribe(self, request: SubscribeRequest) -> Subscription:
        """The subscription, new or known, ready for one more consumer."""
        request.check()
        check_subscription(request.subscription)
        if request.reads_compacted:
            check_read_compacted(request.type)
        check_name(request.subscription, reserved=DEDUPLICATION_CURSOR)
        self._admission.check(request, self._clock.monotonic())
        while True:
            self._topic.check_open()
            subscription = self.subscriptions.get(request.subscription)
            if subscription is None:
                subscription = await self._made(request)
            try:
                is_ready = await self._admit(request, subscription)
            except BaseException:
                subscription.end_if_deserted()
                raise
            if is_ready:
                if request.reads_compacted:
                    chain = self._topic.managed_ledger.chain
                    subscription.read_compacted(first=_first_wanted(request, chain))
                return subscription

    async def _made(self, request: SubscribeRequest) -> Subscription:
        async with self._change():
            self._topic.check_open()
            present = self.subscriptions.get(request.subscription)
            return await self._create(request) if present is None else present

    async def _admit(self, request: SubscribeRequest, subscription: Subscription) -> bool:
        """Make room for one more consumer; False where the subscription was deleted meanwhile."""
        check_durability(
            is_durable=subscription.cursor.is_durable, wants_durable=request.is_durable
        )
        await self._ask_namesakes(request, subscription)
        await subscription.admit(request.type, request.key_shared)
        # While it was waited for, the topic may have been closed, the subscription deleted.
        self._topic.check_open()
        if self.subscriptions.get(request.subscription) is not subscription:
            return False
        self._check_consumers(request, subscription)
        return True

    async def _ask_namesakes(self, request: SubscribeRequest, subscription: Subscription) -> None:
        """Where there is no more room: a consumer of the same name, whose client is gone without a
        word, makes room for the one that comes back."""
        try:
            self._check_consumers(request, subscription)
        except ConsumerBusy:
            for each in list(subscription.consumers):
                if each.name == request.consumer.name and not await each.session.is_alive():
                    await subscription.disconnect(each)

    def _check_consumers(
        self, request: SubscribeRequest, subscription: Subscription | None
    ) -> None:
        """Raise ``ConsumerBusy`` where one more would be too many."""
        if self._admission.limits_consumers:
            self._admission.check_consumers(
                request.consumer.host,
                [each for other in self.subscriptions.values() for each in other.consumers],
                0 if subscription is None else len(subscription.consumers),
            )

    async def _create(self, request: SubscribeRequest) -> Subscription:
        self._admission.check_use(is_durable=request.is_durable)
        self._admission.check_subscriptions(len(self.subscriptions))
        self._check_consumers(request, None)
        chain = self._topic.managed_ledger.chain
        if request.is_durable:
            await self._topic.managed_ledger.begin()
            at = chain.before_first if request.starts_at_earliest else chain.last_confirmed
            cursor = await self._logs.create_cursor(
                self._topic.managed_ledger.name, request.subscription, chain, at, request.properties
            )
        else:
            at = chain.previous_of(chain.readable_from(_first_wanted(request, chain)))
            cursor = self._logs.volatile_cursor(request.subscription, chain, at)
        return await self.add(cursor)

    async def create(
        self,
        name: str,
        *,
        from_earliest: bool = False,
        start: Position | None = None,
        properties: Mapping[str, str] | None = None,
        is_replicated: bool = False,
    ) -> bool:
        """Make a durable subscription without a consumer; whether it was made, not known before.

        Its first message is the one at ``start``, else the next one to be published, or the oldest
        (``from_earliest``).
        """
        check_subscription(name)
        async with self._change():
            self._topic.check_open()
            if name in self.subscriptions:
                return False
            check_name(name, reserved=DEDUPLICATION_CURSOR)
            self._admission.check_subscriptions(len(self.subscriptions))
            await self._topic.managed_ledger.begin()
            chain = self._topic.managed_ledger.chain
            at = chain.before_first if from_earliest else chain.last_confirmed
            if start is not None:
                at = chain.previous_of(chain.readable_from(start))
            cursor = await self._logs.create_cursor(
                self._topic.managed_ledger.name,
                name,
                chain,
                at,
                properties or {},
                is_replicated=is_replicated,
            )
            await self.add(cursor)
            return True

    def is_used(self, *, with_backlog: bool) -> bool:
        """Whether there is a subscription, or one comes or goes; ``with_backlog``: one that has
        something left to read."""
        if self._changing is not None and self._changing.locked():
            return True
        if with_backlog:
            return any(each.backlog_entries for each in self.subscriptions.values())
        return bool(self.subscriptions)

    def named(self, name: str) -> Subscription:
        """The subscription of this name. Raises ``SubscriptionNotFound``."""
        try:
            return self.subscriptions[name]
        except KeyError:
            raise SubscriptionNotFound(name, str(self._topic.name)) from None

    def subscription_left(self, subscription: Subscription) -> None:
        """The last consumer of a subscription that is not durable has gone."""
        if not self._is_closed and self.subscriptions.get(subscription.name) is subscription:
            self._take_out(subscription)
            self._topic.spawn(
                subscription.cursor.__aexit__(None, None, None), name=f"forget {subscription.name}"
            )

    def _take_out(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.name]
        if self._throttling is not None:
            self._throttling.forget(subscription)
        self._topic.last_used_s = self._clock.monotonic()

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        """Forget a subscription and its cursor; ``consumer`` is the one that asks for it."""
        async with self._change():
            if self._is_closed:
                raise TopicFenced(self._topic_name)
            if self.subscriptions.get(subscription.name) is subscription:
                subscription.give_up(consumer, force=force)
                self._take_out(subscription)
                try:
                    await subscription.delete_stored()
                finally:
                    await subscription.cursor.__aexit__(None, None, None)

    def disconnect_all(self) -> None:
        """Let all consumers go."""
        for subscription in self.subscriptions.values():
            subscription.close_consumers()

    async def close(self) -> None:
        """Write what is not yet written, and close the cursors."""
        async with self._change():
            self._is_closed = True
            if self._throttling is not None:
                for each in self.subscriptions.values():
                    self._throttling.forget(each)
                self._throttling.close()
            await asyncio.gather(*(each.close() for each in self.subscriptions.values()))

    def let_go(self) -> None:
        """The topic is closed: keep no subscriptions, which know this, so that all is freed."""
        self.subscriptions.clear()

    async def delete_stored(self) -> None:
        """Forget all cursors for good; nobody comes any more."""
        async with self._change():
            for subscription in list(self.subscriptions.values()):
                await subscription.delete_stored()
