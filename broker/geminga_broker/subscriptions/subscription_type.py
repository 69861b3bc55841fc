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

    @property
    def tracks_entries(self) -> bool:
        """Whether several consumers share the messages, so that what each holds is kept entry by
        entry."""
        return self is SubscriptionType.SHARED or self is SubscriptionType.KEY_SHARED


_LABELS = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
