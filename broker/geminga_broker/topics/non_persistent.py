"""A non-persistent topic: messages go to the consumers connected now and are kept nowhere.

Whoever has no permits misses the message; it is counted as dropped. Receipts are sent at once, with
message id 0:0, as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from geminga_broker.counting.meter import Meter
from geminga_broker.errors import ConsumerBusy, NotAllowed, TopicFenced
from geminga_broker.log.append_request import AppendRequest
from geminga_broker.log.cursor import OnDurable
from geminga_broker.log.payloads import message_count
from geminga_broker.log.positions import AckedEntry, Entry, EntryId, Position
from geminga_broker.subscriptions.active_consumer import choose_active
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer
from geminga_broker.subscriptions.key_shared.policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.key_shared.selector import new_selector
from geminga_broker.topics.consuming.admission import Admission, check_name
from geminga_broker.topics.consuming.subscribe_policies import DEFAULT_POLICIES, SubscribePolicies
from geminga_broker.topics.inactivity import Inactivity
from geminga_broker.topics.policies import TopicPolicies
from geminga_broker.topics.producing.producers import Producer, Producers
from geminga_broker.topics.producing.publish_gate import PublishGate
from geminga_broker.topics.producing.publish_policies import (
    DEFAULT_POLICIES as DEFAULT_PUBLISH_POLICIES,
)
from geminga_broker.topics.producing.publish_policies import PublishPolicies
from geminga_broker.topics.producing.publish_rate import PublishRate
from geminga_broker.topics.producing.topic_epoch import (
    TopicEpoch,
)
from geminga_broker.topics.rates import tick_topic
from geminga_broker.topics.topic import SubscribeRequest
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.sticky_key import sticky_key
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service

NOWHERE = Position(0, 0)


class VolatileSubscription:
    """A subscription that lives while consumers are connected."""

    def __init__(self, topic: NonPersistentTopic, name: str) -> None:
        self.name = name
        self.type: SubscriptionType | None = None
        self.consumers: list[Consumer] = []
        # The consumer that gets everything, unless several share it.
        self.active: Consumer | None = None
        self.messages_dropped = 0
        self.drop_meter = Meter(None, 0)
        self.messages_out_before = 0
        self.bytes_out_before = 0
        # Which consumer a key belongs to, where the type is Key_Shared.
        self.keys = new_selector(AUTO_SPLIT)
        self.key_shared = AUTO_SPLIT
        self._topic = topic
        self._turn = 0

    @property
    def messages_out(self) -> int:
        """Messages sent since the subscription began."""
        return self.messages_out_before + sum(each.messages_out for each in self.consumers)

    @property
    def bytes_out(self) -> int:
        """Bytes sent since the subscription began."""
        return self.bytes_out_before + sum(each.bytes_out for each in self.consumers)

    @property
    def mark_delete(self) -> None:
        """Nothing is kept, so nothing is marked."""
        return

    @property
    def backlog_entries(self) -> int:
        """Nothing waits here."""
        return 0

    @property
    def expiry_rate(self) -> float:
        """Nothing stays long enough to grow old."""
        return 0.0

    def check(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> None:
        """Raise where a consumer of that type may not connect."""
        if self.consumers and self.type is not kind:
            raise ConsumerBusy("Subscription is of different type")
        if self.consumers and kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if kind is SubscriptionType.KEY_SHARED:
            self._check_keys(key_shared)
        self.type = kind

    def _check_keys(self, key_shared: KeySharedPolicy) -> None:
        if self.consumers:
            key_shared.check_alike(self.key_shared)
        else:
            self.keys, self.key_shared = new_selector(key_shared), key_shared
        self.keys.check(key_shared.ranges)

    def connected(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        self.consumers.append(consumer)
        if self.type is SubscriptionType.KEY_SHARED:
            self.keys.add(consumer)
        self._consumers_changed()

    def _consumers_changed(self) -> None:
        self.active = self._choose_active()
        if self.type is SubscriptionType.FAILOVER:
            for each in self.consumers:
                each.on_active_changed(each, each is self.active)

    def _choose_active(self) -> Consumer | None:
        if not self.consumers or (self.type is not None and self.type.tracks_entries):
            return None
        names = [(each.priority, each.name) for each in self.consumers]
        topic = self._topic.name
        return self.consumers[choose_active(str(topic), topic.partition_index, names)]

    def deliver(self, payload: bytes, messages: int) -> None:
        """Send one entry to whoever's turn it is, or drop it; a marker is for no consumer."""
        messages = messages or message_count(payload)
        if not messages:
            return
        consumer = self.active or self._receiver(payload)
        if consumer is None or not consumer.can_take:
            self.messages_dropped += messages
            return
        consumer.deliver_untracked(NOWHERE, payload, messages)
        consumer.note_time()

    def _receiver(self, payload: bytes) -> Consumer | None:
        if self.type is SubscriptionType.KEY_SHARED:
            return self.keys.select(self.keys.hash_of(sticky_key(payload)))
        return self._next_ready()

    def _next_ready(self) -> Consumer | None:
        ready = [each for each in self.consumers if each.can_take]
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def flow(self, consumer: Consumer, permits: int) -> None:
        """``consumer`` has room for ``permits`` more messages."""
        consumer.permits = min(consumer.permits + permits, PERMITS_MAX)

    def entries_available(self) -> None:
        """Nothing waits here."""

    def acknowledge(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Nothing is kept, so there is nothing to forget."""
        del consumer, entries
        if on_durable is not None:
            on_durable(None)

    def acknowledge_entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """The same."""

    def acknowledge_upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """The same."""
        del consumer, position, ack_set
        if on_durable is not None:
            on_durable(None)

    def redeliver(self, consumer: Consumer, positions: list[Position] | None) -> None:
        """What was sent is gone."""

    async def seek(self, position: Position, remaining: Sequence[int] = ()) -> None:
        """There is nowhere to go."""
        del position, remaining
        raise NotAllowed("a non-persistent topic keeps no messages to seek to")

    async def seek_time(self, time_ms: int) -> None:
        """There is nowhere to go."""
        del time_ms
        raise NotAllowed("a non-persistent topic keeps no messages to seek to")

    async def last_message(self, *, reads_compacted: bool = False) -> tuple[Position, int]:
        """There is none."""
        del reads_compacted
        raise NotAllowed("a non-persistent topic keeps no last message")

    async def disconnect(self, consumer: Consumer) -> None:
        """``consumer`` is gone; with the last one, so is the subscription."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.keys.remove(consumer)
            self.messages_out_before += consumer.messages_out
            self.bytes_out_before += consumer.bytes_out
            self._consumers_changed()
        if not self.consumers and self._topic.subscriptions.get(self.name) is self:
            del self._topic.subscriptions[self.name]

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """As ``disconnect``; others stay unless ``force``."""
        if force:
            self.consumers = [each for each in self.consumers if each is not consumer]
            self.close_consumers()
        await self.disconnect(consumer)

    def close_consumers(self) -> None:
        """Tell every consumer to subscribe again."""
        gone, self.consumers, self.active = self.consumers, [], None
        self.keys = new_selector(self.key_shared)
        for consumer in gone:
            consumer.on_closed(consumer)


class NonPersistentTopic(Service):
    """Topic ``name``; nothing of it survives."""

    def __init__(
        self,
        name: TopicName,
        clock: Clock,
        policies: SubscribePolicies = DEFAULT_POLICIES,
        publishing: PublishPolicies = DEFAULT_PUBLISH_POLICIES,
        broker_rate: PublishRate | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.admission = Admission(str(name), policies)
        self.producers = Producers(str(name), self)
        self.gate = PublishGate(str(name), self.producers, clock, broker_rate)
        self.gate.apply(publishing)
        self.epoch = TopicEpoch(self.producers, self)
        self.subscriptions: dict[str, VolatileSubscription] = {}
        self.messages_in = 0
        self.bytes_in = 0
        self.last_publish_ms = 0
        self.created_at_ms = clock.wall_ms()
        self.last_used_s = clock.monotonic()
        self.meter = Meter(self.last_used_s, 0, 0, 0, 0)
        self._clock = clock
        self._is_fenced = False

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self.disconnect_all)

    def apply(self, policies: TopicPolicies) -> None:
        """From now on these hold, as far as they are about who may subscribe and publish."""
        self.admission.policies = policies.subscribing
        self.gate.apply(policies.publishing)
        take = self.gate.before(self._publish)
        for producer in self.producers:
            producer.append_all = partial(take, producer)
        self.gate.let_go()

    async def connect_producer(self, producer: Producer) -> None:
        """Let ``producer`` in; one of its name whose client is gone without a word makes room."""
        await self.producers.ask_namesake(producer)
        if self._is_fenced:
            raise TopicFenced(str(self.name))
        self.gate.check(producer)
        self.epoch.check(producer)
        self.producers.add(producer)
        if not producer.is_waiting:
            producer.append_all = partial(self.gate.before(self._publish), producer)
            await self.epoch.admit(producer)

    def producer_promoted(self, producer: Producer) -> None:
        """It is the turn of one that waits."""
        producer.append_all = partial(self.gate.before(self._publish), producer)
        self.spawn(self.epoch.promote(producer), name=f"let in {producer.name}")

    def producer_left(self, producer: Producer) -> None:
        """One that was let in is here no more."""
        del producer
        self.last_used_s = self._clock.monotonic()

    async def store_epoch(self, epoch: int) -> None:
        """Nothing is stored of the topic, nor is this."""

    async def settle(self, producer_name: str) -> None:
        """What was sent is there, or lost, at once."""

    def _publish(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        for request in requests:
            payload, messages, _, _, _ = request
            for subscription in self.subscriptions.values():
                subscription.deliver(payload, messages)
            entry: Entry = (NOWHERE.entry_id, payload, messages)
            producer.confirm(NOWHERE.ledger_id, [(entry, request)])
            self.messages_in += messages or 1
            self.bytes_in += len(payload)
        self.last_publish_ms = self._clock.wall_ms()

    async def subscribe(self, request: SubscribeRequest) -> VolatileSubscription:
        """The subscription, new or known, ready for one more consumer."""
        request.check()
        if self._is_fenced:
            raise TopicFenced(str(self.name))
        if request.reads_compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        check_name(request.subscription, reserved="")
        self.admission.check(request, self._clock.monotonic())
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            self.admission.check_subscriptions(len(self.subscriptions))
            subscription = VolatileSubscription(self, request.subscription)
        if self.admission.limits_consumers:
            of_topic = [each for other in self.subscriptions.values() for each in other.consumers]
            self.admission.check_consumers(
                request.consumer.host, of_topic, len(subscription.consumers)
            )
        subscription.check(request.type, request.key_shared)
        self.subscriptions[subscription.name] = subscription
        return subscription

    async def create_subscription(self, name: str, *, from_earliest: bool = False) -> bool:
        """A subscription without consumers would get nothing: there is nothing to make."""
        del name, from_earliest
        return False

    @property
    def publish_pauses(self) -> int:
        """How often somebody was not read for a while, since the topic was loaded."""
        return self.gate.pauses

    @property
    def is_fenced(self) -> bool:
        """Whether the topic takes nobody any more: it is ending."""
        return self._is_fenced

    @property
    def connected_count(self) -> int:
        """How many producers and consumers are connected."""
        consumers = sum(len(each.consumers) for each in self.subscriptions.values())
        return len(self.producers) + consumers

    def is_used(self, rule: Inactivity) -> bool:
        """Whether anybody is connected."""
        del rule
        return bool(self.connected_count)

    @property
    def retention_ms(self) -> int:
        """Nothing is kept."""
        return 0

    def disconnect_all(self) -> None:
        """Let all clients go: they look the topic up again."""
        self._is_fenced = True
        self.producers.remove_all(TopicFenced(str(self.name)))
        for subscription in list(self.subscriptions.values()):
            subscription.close_consumers()

    async def delete(self) -> None:
        """Let all clients go; nothing is stored."""
        self.disconnect_all()

    def tick(self, now_s: float) -> None:
        """Once a stats period: the topic's rates and those of all who are connected."""
        period_s = self.meter.elapsed_s(now_s)
        tick_topic(self, now_s)
        for subscription in self.subscriptions.values():
            subscription.drop_meter.tick(now_s, subscription.messages_dropped, period_s=period_s)
