"""One subscription of a non-persistent topic: messages go to the consumers connected now.

Whoever has no permits misses the message; it is counted as dropped. Nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from geminga_broker.errors import ConsumerBusy, NotAllowed
from geminga_broker.managed_ledger.cursor import OnDurable
from geminga_broker.managed_ledger.payloads import message_count
from geminga_broker.managed_ledger.positions import AckedEntry, EntryId, Position
from geminga_broker.subscriptions.consumer import PERMITS_MAX, Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.distribution.active_consumer import choose_active
from geminga_broker.subscriptions.distribution.key_shared import new_selector
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.sticky_key import sticky_key
from geminga_server.metrics import Meter

# Where all messages of a topic without a log are, as upstream has it.
NOWHERE = Position(0, 0)


class NonPersistentSubscription:
    """Subscription ``name`` of a topic, which lives while consumers are connected; ``partition`` is
    -1 for a topic that is none. ``on_deserted`` is called when the last consumer has gone."""

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
        self._partition = partition
        self._on_deserted = on_deserted
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
                each.listener.active_changed(each, is_active=each is self.active)

    def _choose_active(self) -> Consumer | None:
        if not self.consumers or (self.type is not None and self.type.tracks_entries):
            return None
        names = [(each.priority, each.name) for each in self.consumers]
        return self.consumers[choose_active(self._topic, self._partition, names)]

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
        if not self.consumers:
            self._on_deserted(self)

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
            consumer.listener.closed(consumer)
