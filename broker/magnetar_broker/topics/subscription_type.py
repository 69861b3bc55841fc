"""The four types of subscription."""

from __future__ import annotations

from enum import IntEnum


class SubscriptionType(IntEnum):
    """CommandSubscribe.SubType, PulsarApi.proto."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def label(self) -> str:
        """As stats name it."""
        return _LABELS[self]


_LABELS = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
