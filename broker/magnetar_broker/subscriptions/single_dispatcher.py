"""Exclusive and Failover subscriptions: one active consumer gets everything, in order.

No single message is tracked: acknowledgements move the cursor, and sending again means beginning
after its mark-delete position.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_broker.errors import ConsumerBusy
from magnetar_broker.log.cursor import Cursor
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.positions import Position
from magnetar_broker.subscriptions.active_consumer import choose_active
from magnetar_broker.subscriptions.consumer import Consumer
from magnetar_broker.subscriptions.dispatcher import Dispatcher
from magnetar_broker.subscriptions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy


class SingleDispatcher(Dispatcher):
    """Dispatches to one consumer at a time. ``is_exclusive`` refuses a second one."""

    def __init__(
        self,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        *,
        topic: str,
        partition: int,
        is_exclusive: bool,
    ) -> None:
        super().__init__(managed_ledger, cursor)
        self._topic = topic
        self._partition = partition
        self._is_exclusive = is_exclusive
        self._active: Consumer | None = None

    @property
    def active(self) -> Consumer | None:
        """The consumer that gets everything."""
        return self._active

    def in_the_way(self, key_shared: KeySharedPolicy) -> Consumer | None:
        """The one consumer of an Exclusive subscription."""
        del key_shared
        return self.consumers[0] if self._is_exclusive and self.consumers else None

    def check_room(self, key_shared: KeySharedPolicy = AUTO_SPLIT) -> None:
        """Raise ``ConsumerBusy`` for a second consumer of an Exclusive subscription."""
        del key_shared
        if self._is_exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part; it may become the active one."""
        self.consumers.append(consumer)
        if not self._choose():
            self._tell(consumer)

    def remove(self, consumer: Consumer) -> None:
        """``consumer`` is gone; another may become the active one."""
        self.consumers.remove(consumer)
        if consumer is self._active:
            self._active = None
        if self.consumers:
            self._choose()

    def _choose(self) -> bool:
        """Choose the active consumer; True when that changed it."""
        names = [(each.priority, each.name) for each in self.consumers]
        chosen = self.consumers[choose_active(self._topic, self._partition, names)]
        if chosen is self._active:
            return False
        self._active = chosen
        self.rewind()
        for each in self.consumers:
            self._tell(each)
        self.dispatch()
        return True

    def _tell(self, consumer: Consumer) -> None:
        if not self._is_exclusive:
            consumer.on_active_changed(consumer, consumer is self._active)

    def dispatch(self) -> None:
        """Send the active consumer what it has permits for."""
        consumer = self._active
        if consumer is None:
            return
        acknowledged = self.cursor.acknowledged
        while consumer.can_take:
            found = self._next_run()
            if found is None:
                return
            ledger_id, run = found
            used = consumer.deliver_in_order(ledger_id, run, acknowledged)
            self.entries_sent += used
            self.read_position = Position(ledger_id, run[0][0] + used)

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> None:
        """Everything unacknowledged again: only that keeps the order (as upstream)."""
        del positions
        if consumer is self._active:
            self.rewind()
            self.dispatch()
