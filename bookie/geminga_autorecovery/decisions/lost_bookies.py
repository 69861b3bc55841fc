"""When the loss of bookies is to be acted on.

Pure; BookKeeper's rules (``Auditor.submitAuditTask``): one lost bookie is waited for, since most
come back after a restart; the audit is called off when it does. When a second is lost meanwhile
nobody waits any more.
"""

from __future__ import annotations


class LostBookies:
    """Compares the bookies known with those there are; times are in seconds, monotonic.

    ``audit_at_s`` is when the ledgers of the lost bookies are to be marked, None for not at all.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._lost: frozenset[str] = frozenset()
        self.audit_at_s: float | None = None
        # Audits that were put off, and put-off audits that were called off.
        self.delayed_count = 0
        self.cancelled_count = 0

    @property
    def lost(self) -> frozenset[str]:
        """The bookies that are missed and not audited yet."""
        return self._lost

    def observe(self, available: frozenset[str], *, delay_s: float, now_s: float) -> None:
        """These bookies, writable or read-only, are registered now."""
        self._known |= available
        if self._lost and self._lost <= available:
            self._cancel()
            self._lost = frozenset()
        self._lost |= self._known - available
        self._known -= self._lost
        if not self._lost:
            return
        if delay_s <= 0 or len(self._lost) > 1:
            if self.audit_at_s is not None and self.audit_at_s > now_s:
                self._cancel()
            self.audit_at_s = now_s
        elif self.audit_at_s is None:
            self.audit_at_s = now_s + delay_s
            self.delayed_count += 1

    def delay_changed(self, delay_s: float, *, is_same: bool, now_s: float) -> None:
        """Somebody wrote the delay anew; writing it unchanged asks for an audit at once."""
        if delay_s <= 0 or is_same:
            self._cancel()
            self.audit_at_s = now_s
        elif self.audit_at_s is not None:
            self._cancel()
            self.audit_at_s = now_s + delay_s
            self.delayed_count += 1

    def audited(self, live: frozenset[str]) -> None:
        """The ledgers of all bookies but ``live`` are marked; those are missed when they go."""
        self._known |= live
        self._lost = frozenset()
        self.audit_at_s = None

    def _cancel(self) -> None:
        if self.audit_at_s is not None:
            self.cancelled_count += 1
            self.audit_at_s = None
