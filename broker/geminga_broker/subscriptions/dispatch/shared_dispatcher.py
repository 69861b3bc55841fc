"""Shared subscriptions: each entry goes to one of many consumers (``SharedDistribution``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.cursor_reader import RUN_ENTRIES_MAX
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import (
    DUE_AT_ONCE_MAX,
    TrackingDispatcher,
)
from geminga_broker.subscriptions.distribution.chunk_receivers import WAITING_MAX
from geminga_broker.subscriptions.distribution.shared import TURN_MESSAGES_MAX, SharedDistribution


@dataclass(eq=False)
class SharedDispatcher(TrackingDispatcher):
    """Spreads entries over all consumers that have permits."""

    _shared: SharedDistribution = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._distribution = self._shared = SharedDistribution(self.consumers)

    def dispatch(self) -> None:
        """Send what can be sent: replayed entries first, then new ones."""
        shared, reader, chunks = self._shared, self.reader, self._shared.chunks
        # First the chunks that wait for the consumer that has the other chunks of their message.
        if chunks.waiting:
            # A copy: ``taker`` may add the queue of another receiver.
            for receiver, queue in list(chunks.waiting.items()):
                # While it is set, ``taker`` does not queue its chunks again.
                chunks.served = receiver
                while queue and receiver.can_take and self._may_send():
                    if not self._replay_turn(receiver, queue, RUN_ENTRIES_MAX):
                        break
                if not queue:
                    del chunks.waiting[receiver]
            chunks.served = None
        # Each round is the turn of one consumer, of at most TURN_MESSAGES_MAX messages.
        while self._may_send():
            # Asked anew for each turn: sending takes permits, and may fill a socket.
            consumer = shared.next_consumer()
            if consumer is None:
                return
            if reader.has_due:
                # Negative where enough wait already: then none is taken.
                due = reader.take_due(DUE_AT_ONCE_MAX - shared.waiting_count)
                shared.replay.add_all(due)
            # Replayed entries take whole turns: new ones wait until none is left.
            if shared.replay:
                is_served = self._replay_turn(consumer, shared.replay, TURN_MESSAGES_MAX)
            else:
                is_served = self._dispatch_new(consumer)
            if not is_served:
                # Its turn stays. Where messages arrive one by one, each of them ends here once: if
                # that used up a turn, every second consumer would never be served.
                shared.keep_turn(consumer)
                return

    def _dispatch_new(self, consumer: Consumer) -> bool:
        """Send ``consumer`` new entries while its turn lasts. False if no more can be read now, or
        if they must wait."""
        chunks = self._shared.chunks
        if chunks.waiting and chunks.waiting_count >= WAITING_MAX:
            return False
        found = self.reader.next_run(TURN_MESSAGES_MAX)
        if found is None:
            return False
        ledger_id, run = found
        if self._throttle is None:
            used = self._send_open(consumer, ledger_id, TURN_MESSAGES_MAX, run)
        else:
            send = partial(self._send_open, consumer, ledger_id, TURN_MESSAGES_MAX)
            used = self._send_slowly(ledger_id, run, send)
        if not used:
            return False
        consumer.note_time()
        self.entries_sent += used
        self.reader.advance(ledger_id, run, used)
        return True
