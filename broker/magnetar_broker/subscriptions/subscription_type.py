"""The four types of subscription."""

from __future__ import annotations

from enum import IntEnum

from magnetar_broker.errors import NotAllowed


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

    def check_served(self) -> None:
        """Raise ``NotAllowed`` for a type that no consumer may have: before anything is made."""
        if self is SubscriptionType.KEY_SHARED:
            raise NotAllowed("Key_Shared subscriptions are not served yet: use Shared or Failover")


_LABELS = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
