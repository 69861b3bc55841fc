"""When the auditor acts on the loss of bookies.

Pure; BookKeeper's rules (``Auditor.submitAuditTask``): a single lost bookie is given a grace, since
most come back after a restart; the audit is cancelled when it does. When a second one is lost
meanwhile, the audit begins at once.
"""

from __future__ import annotations

# With a grace of 60 s; ``audit_at_s`` after each observation:
#
#     at 0 s      b1 is missing                       60 s
#     at 20 s     b1 is back                          none: cancelled, it was a restart
#     at 100 s    b1 is missing                       160 s
#     at 110 s    b1 and b2 are missing               110 s: at once, this is no restart
#
# or, after the third:
#
#     at 160 s    b1 is still missing                 160 s: the audit runs


class LostBookies:
    """Compares the known bookies with the registered ones; times are in seconds, monotonic."""

    def __init__(self, known: frozenset[str]) -> None:
        # Bookies whose loss would be noticed; those in ``lost`` are not in it any more. A lost one
        # comes back to it only when it is registered again: one that stays away is not audited a
        # second time for the same loss.
        self._known = known
        # The bookies that are missing and not audited yet.
        self.lost: frozenset[str] = frozenset()
        # When the ledgers of the lost bookies are to be marked; None for not at all.
        self.audit_at_s: float | None = None
        # Audits that were delayed by a grace, and delayed audits that were cancelled.
        self.delayed_count = 0
        self.cancelled_count = 0

    def observe(self, available: frozenset[str], *, delay_s: float, now_s: float) -> None:
        """These bookies, writable or read-only, are registered now."""
        self._known |= available
        # All of them are back: most likely a restart, or a moment without ZooKeeper.
        if self.lost and self.lost <= available:
            self._cancel()
            self.lost = frozenset()
        # Where only some are back, all count as lost until the audit, which looks anew which are
        # registered.
        self.lost |= self._known - available
        # Known and lost bookies are disjoint from here on, so that ``observe`` finds each loss
        # once.
        self._known -= self.lost
        if not self.lost:
            return
        # Without a grace, or with several lost: at once, and that ends a grace under way.
        if delay_s <= 0 or len(self.lost) > 1:
            # An audit that is due already is not cancelled by this: it merely has not begun.
            if self.audit_at_s is not None and self.audit_at_s > now_s:
                self._cancel()
            self.audit_at_s = now_s
        elif self.audit_at_s is None:
            self.audit_at_s = now_s + delay_s
            self.delayed_count += 1

    def delay_changed(self, delay_s: float, *, is_same: bool, now_s: float) -> None:
        """An operator wrote the delay; writing it unchanged asks for an audit at once."""
        # A grace under way ends with the old delay, and counts as cancelled.
        if delay_s <= 0 or is_same:
            self._cancel()
            self.audit_at_s = now_s
        elif self.audit_at_s is not None:
            self._cancel()
            self.audit_at_s = now_s + delay_s
            self.delayed_count += 1

    def audited(self, live: frozenset[str]) -> None:
        """The ledgers of all bookies but ``live`` are marked; ``live`` ones count when they go."""
        self._known |= live
        self.lost = frozenset()
        self.audit_at_s = None

    def _cancel(self) -> None:
        if self.audit_at_s is not None:
            self.cancelled_count += 1
            self.audit_at_s = None
