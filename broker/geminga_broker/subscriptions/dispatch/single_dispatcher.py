"""Exclusive and Failover subscriptions: one active consumer gets everything, in order.

No single message is tracked: acknowledgements move the cursor, and sending again means beginning
after its mark-delete position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from geminga_broker.errors import ConsumerBusy
from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, EntryId
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.decisions.key_shared_policy import AUTO_SPLIT, KeySharedPolicy
from geminga_broker.subscriptions.dispatch.compacted_reader import CompactedReader
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.active_consumer import choose_active


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
        handover_delay_s: float = 0.0,
    ) -> None:
        super().__init__(managed_ledger, cursor)
        self._topic = topic
        self._partition = partition
        self._is_exclusive = is_exclusive
        # A consumer that is no longer the active one may acknowledge for so long what it was sent,
        # before that is sent to the next one.
        self._handover_delay_s = 0.0 if is_exclusive else handover_delay_s
        self._handover: asyncio.TimerHandle | None = None
        # Who is to get everything, and who gets it: nobody while that changes.
        self._chosen: Consumer | None = None
        self._active: Consumer | None = None
        # Where those read who read compacted; None until one comes.
        self.compacted: CompactedReader | None = None

    @property
    def active(self) -> Consumer | None:
        """The consumer that gets everything, or will when it is handed over."""
        return self._chosen

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody is here: reading begins anew with whoever comes."""
        return not self.consumers and self.reader.is_idle

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
        if consumer is self._chosen:
            self._chosen = self._active = None
        if self.consumers:
            self._choose()
        elif self._handover is not None:
            self._handover.cancel()
            self._handover = None

    def _choose(self) -> bool:
        """Choose the active consumer; True when that changed it."""
        names = [(each.priority, each.name) for each in self.consumers]
        chosen = self.consumers[choose_active(self._topic, self._partition, names)]
        if chosen is self._chosen:
            return False
        self._chosen = chosen
        if not self._handover_delay_s:
            self._hand_over()
            return True
        self._active = None
        if self._handover is None:
            loop = asyncio.get_running_loop()
            self._handover = loop.call_later(self._handover_delay_s, self._hand_over)
        return True

    def _hand_over(self) -> None:
        """Whoever is chosen by now gets everything that is not acknowledged."""
        self._handover = None
        self._active = chosen = self._chosen
        assert chosen is not None, "the last consumer that goes stops the timer"
        self.reader.let_go()
        self.reader.compacted = self.compacted if chosen.reads_compacted else None
        self.rewind()
        for each in self.consumers:
            self._tell(each)
        self.dispatch()

    def _tell(self, consumer: Consumer) -> None:
        if not self._is_exclusive:
            consumer.listener.active_changed(consumer, is_active=consumer is self._active)

    def dispatch(self) -> None:
        """Send the active consumer what it has permits for."""
        consumer = self._active
        if consumer is None:
            return
        reader = self.reader
        while consumer.can_take:
            found = reader.next_run()
            if found is None:
                return
            ledger_id, run = found
            used = self._deliver(consumer, ledger_id, run)
            if not used:
                return
            self.entries_sent += used
            reader.advance(ledger_id, run, used)

    def _deliver(self, consumer: Consumer, ledger_id: int, run: list[Entry]) -> int:
        """Send entries of ``run``; how many it used, 0 where they must wait."""
        reader = self.reader
        acknowledged = reader.acknowledged_in(ledger_id)
        if self._throttle is None:
            return consumer.deliver_in_order(ledger_id, run, acknowledged, reader.pass_over)

        def send(allowed: list[Entry]) -> int:
            return consumer.deliver_in_order(ledger_id, allowed, acknowledged, reader.pass_over)

        return self._send_slowly(ledger_id, run, send)

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Everything unacknowledged again: only that keeps the order (as upstream)."""
        del positions
        if consumer is self._active:
            self.rewind()
            self.dispatch()
