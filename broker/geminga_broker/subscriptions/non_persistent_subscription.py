"""One subscription of a non-persistent topic: messages go to the consumers connected now.

A message for a consumer without permits is dropped and counted. Nothing is stored, so there is
nothing to acknowledge, to send again or to seek to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from geminga_broker.errors import ConsumerBusy, ConsumerNotAssigned
from geminga_broker.managed_ledger.cursors.cursor import OnDurable
from geminga_broker.managed_ledger.positions import AckedEntry, EntryId, Position
from geminga_broker.managed_ledger.reading.payloads import message_count
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer, ConsumerEvent, Sent
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.distribution.active_consumer import choose_active
from geminga_broker.subscriptions.distribution.key_shared import new_selector
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.sticky_key import sticky_key
from geminga_server.metrics import Meter

# The position of every message of a topic without a log, as upstream has it.
NOWHERE = Position(0, 0)


class NothingAcknowledged:
    """Takes acknowledgements in the place of an ``Acknowledger``. Nothing is stored, so that each
    succeeds at once."""

    def single(
        self, consumer: Consumer, entries: Iterable[AckedEntry], on_durable: OnDurable | None
    ) -> None:
        """Report success."""
        del consumer, entries
        if on_durable is not None:
            on_durable(None)

    def entries(self, consumer: Consumer, ids: list[EntryId]) -> None:
        """Do nothing: there is no receipt."""

    def upto(
        self,
        consumer: Consumer,
        position: Position,
        ack_set: Sequence[int],
        on_durable: OnDurable | None,
    ) -> None:
        """Report success."""
        del position, ack_set
        self.single(consumer, (), on_durable)


class NonPersistentSubscription:
    """Subscription ``name`` of ``topic``, which exists while consumers are connected.

    ``partition`` is the index of the topic, -1 if the topic is not a partition. ``on_deserted`` is
    called when the last consumer has left.
    """

    acknowledger = NothingAcknowledged()

    def __init__(
        self,
        name: str,
        topic: str,
        partition: int,
        on_deserted: Callable[[NonPersistentSubscription], None],
    ) -> None:
        self.name = name
        self.type: SubscriptionType | None = None
        self.consumers: list[Consumer] = []
        # The consumer that gets everything, for types that have one.
        self.active: Consumer | None = None
        # Messages whose consumer had no permits.
        self.messages_dropped = 0
        self.drop_meter = Meter(None, 0)
        # The part of ``sent`` that is of consumers that have left.
        self._sent_before = Sent()
        # Which consumer has which keys, if the type is Key_Shared.
        self.keys = new_selector(AUTO_SPLIT)
        self.key_shared = AUTO_SPLIT
        self._topic = topic
        self._partition = partition
        self._on_deserted = on_deserted
        # Counts messages of a Shared subscription, which go to its consumers in turn.
        self._turn = 0

    def sent(self) -> Sent:
        """What consumers were sent since the subscription was created."""
        before = self._sent_before
        return Sent(
            before.messages + sum(each.messages_out for each in self.consumers),
            before.size_bytes + sum(each.bytes_out for each in self.consumers),
        )

    # Consumers

    def check(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> None:
        """Take the type ``kind``. Raises ``ConsumerBusy`` or ``ConsumerNotAssigned`` if one more
        consumer of it may not be added."""
        # Without consumers it takes any type, and shares keys as the first consumer wants.
        if self.consumers and self.type is not kind:
            raise ConsumerBusy("Subscription is of different type")
        if self.consumers and kind is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if kind is SubscriptionType.KEY_SHARED:
            if self.consumers:
                key_shared.check_alike(self.key_shared)
            else:
                self.keys, self.key_shared = new_selector(key_shared), key_shared
            holder = self.keys.holder(key_shared.ranges)
            if holder is not None:
                raise ConsumerNotAssigned(f"Range conflict with consumer {holder.name}")
        self.type = kind

    def connected(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part."""
        self.consumers.append(consumer)
        if self.type is SubscriptionType.KEY_SHARED:
            self.keys.add(consumer)
        self._consumers_changed()

    def _consumers_changed(self) -> None:
        """Choose the active consumer, and tell the clients of a Failover subscription."""
        self.active = None
        if self.consumers and (self.type is None or not self.type.tracks_entries):
            names = [(each.priority, each.name) for each in self.consumers]
            self.active = self.consumers[choose_active(self._topic, self._partition, names)]
        if self.type is SubscriptionType.FAILOVER:
            for each in self.consumers:
                is_active = each is self.active
                each.tell(each, ConsumerEvent.ACTIVE if is_active else ConsumerEvent.INACTIVE)

    async def disconnect(self, consumer: Consumer) -> None:
        """Remove ``consumer``; with the last one the subscription ends."""
        # It may have been closed before: then only the end of the subscription is left to check.
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.keys.remove(consumer)
            before = self._sent_before
            self._sent_before = Sent(
                before.messages + consumer.messages_out, before.size_bytes + consumer.bytes_out
            )
            self._consumers_changed()
        if not self.consumers:
            # Also for a consumer that was closed before: the subscription must not outlive all of
            # them.
            self._on_deserted(self)

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Remove ``consumer``, and all others with ``force``."""
        if force:
            # Its own client gets an answer instead of a close command.
            self.consumers = [each for each in self.consumers if each is not consumer]
            self.close_consumers()
        await self.disconnect(consumer)

    def close_consumers(self) -> None:
        """Tell every consumer to subscribe again."""
        # First removed, then told: a client that reconnects at once must find room.
        closed, self.consumers, self.active = self.consumers, [], None
        self.keys = new_selector(self.key_shared)
        for consumer in closed:
            consumer.tell(consumer, ConsumerEvent.CLOSED)

    # Messages

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Add ``permits`` messages to what ``consumer`` may be sent."""
        consumer.permits = min(consumer.permits + permits, PERMITS_MAX)

    def deliver(self, payload: bytes, messages: int) -> None:
        """Send one entry to the consumer whose turn it is, or drop it."""
        messages = messages or message_count(payload)
        if not messages:
            return  # a marker, which is for no consumer
        consumer = self.active
        if consumer is None and self.type is SubscriptionType.KEY_SHARED:
            consumer = self.keys.select(self.keys.hash_of(sticky_key(payload)))
        elif consumer is None:
            ready = [each for each in self.consumers if each.can_take]
            if ready:
                self._turn += 1
                # By the number of ready ones now: exact turns are not promised where consumers come
                # and go.
                consumer = ready[self._turn % len(ready)]
        # With Key_Shared or an active consumer, no other one may take its place.
        if consumer is None or not consumer.can_take:
            self.messages_dropped += messages
            return
        consumer.deliver_untracked(NOWHERE, payload, messages)
        consumer.note_time()

    # What sessions ask of any subscription, and what does not apply here

    def entries_available(self) -> None:
        """Do nothing: no entry waits."""

    def redeliver(self, consumer: Consumer, positions: list[Position] | None) -> None:
        """Do nothing: messages that were sent are gone."""
