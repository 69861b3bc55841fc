"""Keeps a subscription's redelivery counts with its cursor, so that they outlive its broker.

They ride along with whatever the cursor writes; where nothing is acknowledged, they are written by
themselves, once in a while. A broker that is killed forgets what was counted since, no more:
the next one's counts are right or a little lower. Closing a topic in good order forgets nothing.
"""

from __future__ import annotations

import asyncio

from geminga_broker.managed_ledger.cursor import Cursor
from geminga_broker.subscriptions.decisions.redelivery_counts import RedeliveryCounts
from geminga_protocol.records.redelivery_counts import (
    is_of_redelivery_counts,
    properties_of_runs,
    runs_of_properties,
)


def has_stored_counts(cursor: Cursor) -> bool:
    """Whether any counts are kept with ``cursor``."""
    return any(map(is_of_redelivery_counts, cursor.position_properties))


class RedeliveryCountStore:
    """The redelivery counts of ``cursor``'s subscription, those of the owner before among them."""

    def __init__(self, cursor: Cursor) -> None:
        self.counts = RedeliveryCounts()
        self._cursor = cursor
        self._timer: asyncio.TimerHandle | None = None
        if self._is_on and cursor.position_properties:
            kept = runs_of_properties(cursor.position_properties)
            self.counts.restore(kept, cursor.chain, cursor.acknowledged)
        self.counts.on_changed = self._changed

    @property
    def _is_on(self) -> bool:
        return self._cursor.is_durable and self._cursor.config.cursor_redelivery_counts

    def _changed(self) -> None:
        """For each entry that is given back: so there is one timer for all of a moment."""
        if self._timer is None and self._cursor.is_durable:
            loop = asyncio.get_running_loop()
            delay_s = self._cursor.config.cursor_redelivery_delay_s
            self._timer = loop.call_later(delay_s, self._keep)

    def _keep(self) -> None:
        self._timer = None
        if self.refresh():
            self._cursor.changed()

    def refresh(self) -> bool:
        """Let the cursor's next write have the counts as they are now; whether that is news."""
        self.counts.forget_passed(self._cursor.mark_delete)
        kept = properties_of_runs(self.counts.runs()) if self._is_on else {}
        return _replace(self._cursor, kept)

    def moved(self) -> None:
        """Everything is read anew: nothing was given back yet."""
        self.counts.clear()
        self.stop()
        self.refresh()

    def finish(self) -> None:
        """Before the cursor is closed, which writes it."""
        self.stop()
        self.refresh()

    def stop(self) -> None:
        """Write nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _replace(cursor: Cursor, kept: dict[str, int]) -> bool:
    """Put ``kept`` in the place of the counts among the cursor's properties, where it differs."""
    properties = cursor.position_properties
    others = {name: properties[name] for name in properties if not is_of_redelivery_counts(name)}
    renewed = {**others, **kept}
    if renewed == properties:
        return False
    cursor.position_properties = renewed
    return True
