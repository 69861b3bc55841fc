"""Proves whose limits hold."""

from __future__ import annotations

from geminga_broker.subscriptions.unacknowledged_limits import UnacknowledgedLimits


def test_what_is_not_given_stays() -> None:
    limits = UnacknowledgedLimits(5, 6)
    assert limits.overridden(None, None) == limits
    assert limits.overridden(-1, -1) == limits
    assert limits.overridden(0, 7) == UnacknowledgedLimits(0, 7)
