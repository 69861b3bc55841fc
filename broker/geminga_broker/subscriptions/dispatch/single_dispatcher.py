"""Exclusive and Failover subscriptions: one active consumer gets everything, in order.

Single messages are not tracked: acknowledgements move the cursor, and redelivery means to begin
again after its mark-delete position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from geminga_broker.managed_ledger.positions import EntryId
from geminga_broker.subscriptions.consumer import Consumer, ConsumerEvent
from geminga_broker.subscriptions.dispatch.compacted_reader import CompactedReader
from geminga_broker.subscriptions.dispatch.dispatcher import Dispatcher
from geminga_broker.subscriptions.distribution.active_consumer import choose_active


@dataclass(eq=False, kw_only=True)
class SingleDispatcher(Dispatcher):
    """Dispatches to one consumer at a time."""

    # Both decide which consumer is the active one.
    topic: str
    partition: int
    # There is no second consumer, and so no handover.
    is_exclusive: bool
    # After a change of the active consumer the former one has so long to acknowledge what it was
    # sent, before the next one is sent the rest.
    handover_delay_s: float = 0.0
    # None until a consumer reads compacted.
    compacted: CompactedReader | None = field(default=None, init=False)
    _handover: asyncio.TimerHandle | None = field(default=None, init=False)
    # The consumer that is sent messages: ``active``, but None during a handover.
    _served: Consumer | None = field(default=None, init=False)

    # The active consumer

    def add(self, consumer: Consumer) -> None:
        """Let ``consumer`` take part; it may become the active one."""
        # A change tells all consumers, this one among them.
        self.consumers.append(consumer)
        if not self._choose():
            self._tell(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove ``consumer``; another may become the active one."""
        self.consumers.remove(consumer)
        # What it held need not be collected: the next active consumer begins after the mark-delete
        # position.
        if consumer is self.active:
            # Else ``_choose`` would compare with a consumer that is gone.
            self.active = self._served = None
        if self.consumers:
            self._choose()
        elif self._handover is not None:
            self._handover.cancel()
            self._handover = None

    def _choose(self) -> bool:
        """Choose the active consumer; True if it is another one than before."""
        names = [(each.priority, each.name) for each in self.consumers]
        chosen = self.consumers[choose_active(self.topic, self.partition, names)]
        if chosen is self.active:
            return False
        self.active = chosen
        if self.is_exclusive or not self.handover_delay_s:
            self._hand_over()
            return True
        # From here to the end of the handover no consumer is sent anything.
        self._served = None
        # A running handover ends with whichever consumer is chosen by then.
        if self._handover is None:
            loop = asyncio.get_running_loop()
            self._handover = loop.call_later(self.handover_delay_s, self._hand_over)
        return True

    def _hand_over(self) -> None:
        """Let the chosen consumer have everything that is not acknowledged."""
        self._handover = None
        self._served = chosen = self.active
        assert chosen is not None, "the last consumer that leaves stops the timer"
        # Before the reader changes: also what was read ahead of the compacted ledger goes.
        self.reader.drop_read_ahead()
        self.reader.compacted = self.compacted if chosen.reads_compacted else None
        self.rewind()
        # Before the first message: a client learns that it is active before it gets messages.
        for each in self.consumers:
            self._tell(each)
        self.dispatch()

    def _tell(self, consumer: Consumer) -> None:
        """Tell a client of a Failover subscription whether its consumer is the active one."""
        if not self.is_exclusive:
            is_active = consumer is self._served
            consumer.tell(consumer, ConsumerEvent.ACTIVE if is_active else ConsumerEvent.INACTIVE)

    # Sending

    def dispatch(self) -> None:
        """Send the active consumer what it has permits for."""
        consumer = self._served
        if consumer is None:
            return
        reader = self.reader
        while consumer.can_take:
            found = reader.next_run()
            if found is None:
                return
            ledger_id, run = found
            acknowledged = reader.acknowledged_in(ledger_id)
            if self._throttle is None:
                used = consumer.deliver_in_order(ledger_id, run, acknowledged, reader.pass_over)
            else:
                send = partial(
                    consumer.deliver_in_order,
                    ledger_id,
                    acknowledged=acknowledged,
                    pass_over=reader.pass_over,
                )
                used = self._send_slowly(ledger_id, run, send)
            # The throttle lets nothing pass now, and calls ``dispatch`` later.
            if not used:
                return
            self.entries_sent += used
            reader.advance(ledger_id, run, used)

    def redeliver(self, consumer: Consumer, positions: Iterable[EntryId] | None) -> None:
        """Send everything unacknowledged again, whatever the ``positions``, as upstream does: only
        that keeps the order."""
        # A former active consumer asks in vain: the handover gives all that it holds to the next
        # one.
        del positions
        if consumer is self._served:
            self.rewind()
            self.dispatch()
