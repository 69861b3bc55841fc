"""Stores a subscription's redelivery counts with its cursor, so that they outlive the broker.

The counts are part of whatever the cursor writes. If no acknowledgement makes the cursor write,
they are written now and then by themselves. A broker that crashes loses only what was counted since
then: the next owner's counts are right, or a little too low. Closing a topic in good order loses
nothing.
"""

from __future__ import annotations

import asyncio

from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_protocol.records.topics.redelivery_counts import (
    is_of_redelivery_counts,
    properties_of_runs,
    runs_of_properties,
)


def has_stored_counts(cursor: Cursor) -> bool:
    """Whether redelivery counts are stored with ``cursor``."""
    return any(map(is_of_redelivery_counts, cursor.position_properties))


class RedeliveryCountStore:
    """The redelivery counts of ``cursor``'s subscription, beginning with the stored ones."""

    def __init__(self, cursor: Cursor) -> None:
        # The dispatcher's own counts (``Subscription.new_dispatcher``), one object for both.
        self.counts = RedeliveryCounts()
        self._cursor = cursor
        # Runs while a write is due; see ``_changed``.
        self._timer: asyncio.TimerHandle | None = None
        # Switched off, counts that an earlier owner stored are ignored; ``refresh`` removes them.
        if self._is_on and cursor.position_properties:
            stored = runs_of_properties(cursor.position_properties)
            self.counts.restore(stored, cursor.chain, cursor.acknowledged)
        # Set after restoring, which is no change to be written.
        self.counts.on_changed = self._changed

    @property
    def _is_on(self) -> bool:
        return self._cursor.is_durable and self._cursor.config.cursor_redelivery_counts

    def _changed(self) -> None:
        """Start the timer of the next write. HOT: called for each entry that is given back, so one
        timer serves all changes until it fires."""
        # Not for a reader, whose counts end with it.
        if self._timer is None and self._cursor.is_durable:
            loop = asyncio.get_running_loop()
            delay_s = self._cursor.config.cursor_redelivery_delay_s
            self._timer = loop.call_later(delay_s, self._keep)

    def _keep(self) -> None:
        self._timer = None
        # The counts may be as before: what was given back may have been acknowledged meanwhile.
        if self.refresh():
            self._cursor.changed()

    def refresh(self) -> bool:
        """Let the cursor's next write have the present counts; False if it has them already."""
        self.counts.forget_passed(self._cursor.mark_delete)
        counts = properties_of_runs(self.counts.runs()) if self._is_on else {}
        # The cursor's other properties, of deduplication for example, stay as they are.
        properties = self._cursor.position_properties
        others = {
            name: value for name, value in properties.items() if not is_of_redelivery_counts(name)
        }
        renewed = {**others, **counts}
        if renewed == properties:
            return False
        # Replaced, as the cursor wants it: it compares the mapping with what was written.
        self._cursor.position_properties = renewed
        return True

    def finish(self) -> None:
        """Let the write that is about to come have the present counts, and none by timer."""
        self.stop()
        self.refresh()

    def stop(self) -> None:
        """Do not write by timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
