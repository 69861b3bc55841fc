"""The broker's error tree. ``code`` is the name of Pulsar's ``ServerError`` a client is told.

GemingaError
└── BrokerError
    ├── TopicNotFound, TopicExists, TopicBusy, TopicReplicated, TopicFenced, TopicTerminated
    ├── SubscriptionNotFound, SubscriptionAbsent
    ├── ConsumerBusy, ConsumerNotAssigned, ConsumerNotFound
    ├── ProducerBusy, ProducerFenced, NameReserved
    ├── ProducerHeldByQuota, ProducerRefusedByQuota
    ├── NotAllowed, InvalidRequest, PatternRefused, ServiceNotReady
    ├── StorageUnavailable
    │   └── EntryDamaged, LedgerGone
    └── TooManyRequests
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from geminga_runtime.errors import GemingaError


class BrokerError(GemingaError):
    """The broker refuses a request and says why."""


class TopicNotFound(BrokerError):
    """No such topic, and it may not be created on demand."""

    code: ClassVar[str] = "TopicNotFound"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} not found")
        self.topic = topic


class TopicExists(BrokerError):
    """A topic of this name is there already."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} already exists")
        self.topic = topic


class TopicBusy(BrokerError):
    """The topic still has producers, consumers or subscriptions."""

    code: ClassVar[str] = "NotAllowedError"


class TopicReplicated(BrokerError):
    """The topic is replicated, and deleted by force only: what the other clusters have would stay,
    and come back with the next message from there."""

    code: ClassVar[str] = "NotAllowedError"

    def __init__(self, clusters: Iterable[str]) -> None:
        self.clusters = sorted(clusters)
        super().__init__(
            f"Delete forbidden topic is replicated on clusters [{', '.join(self.clusters)}]"
        )


class TopicFenced(BrokerError):
    """The topic is being closed, deleted, or has moved to another broker; look it up again."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} is temporarily unavailable")
        self.topic = topic


class TopicTerminated(BrokerError):
    """The topic takes no more messages, for ever; what it has can still be read."""

    code: ClassVar[str] = "TopicTerminatedError"

    def __init__(self) -> None:
        super().__init__("Topic was already terminated")


class SubscriptionNotFound(BrokerError):
    """The topic has no such subscription."""

    code: ClassVar[str] = "SubscriptionNotFound"

    def __init__(self, subscription: str, topic: str) -> None:
        super().__init__(f"Subscription {subscription} not found for topic {topic}")
        self.subscription = subscription
        self.topic = topic


class SubscriptionAbsent(BrokerError):
    """The subscription is not there, and subscribing does not make it."""

    code: ClassVar[str] = "SubscriptionNotFound"

    def __init__(self) -> None:
        super().__init__("Subscription does not exist")


class ConsumerNotFound(BrokerError):
    """This connection has no consumer of that id."""

    code: ClassVar[str] = "ConsumerNotFound"


class ConsumerBusy(BrokerError):
    """The subscription takes no further consumer of this kind."""

    code: ClassVar[str] = "ConsumerBusy"
    retry: ClassVar[bool] = True


class ConsumerNotAssigned(BrokerError):
    """A Key_Shared consumer asks for keys that it cannot have."""

    code: ClassVar[str] = "ConsumerAssignError"


class ProducerBusy(BrokerError):
    """A producer of the same name is connected."""

    code: ClassVar[str] = "ProducerBusy"
    retry: ClassVar[bool] = True


class NameReserved(BrokerError):
    """The broker keeps this name for itself, or it is none."""

    code: ClassVar[str] = "ProducerBusy"  # upstream's, for subscriptions too


class ProducerFenced(BrokerError):
    """An exclusive producer has the topic."""

    code: ClassVar[str] = "ProducerFenced"


class ProducerHeldByQuota(BrokerError):
    """The topic's backlog is too large; a client that can wait tries again until it is not."""

    code: ClassVar[str] = "ProducerBlockedQuotaExceededError"
    retry: ClassVar[bool] = True


class ProducerRefusedByQuota(BrokerError):
    """The topic's backlog is too large, and its producers are to be told so."""

    code: ClassVar[str] = "ProducerBlockedQuotaExceededException"


class NotAllowed(BrokerError):
    """The request is understood and not permitted here."""

    code: ClassVar[str] = "NotAllowedError"


class InvalidRequest(BrokerError):
    """A field is missing, contradicts another, or names what cannot be meant."""

    code: ClassVar[str] = "MetadataError"


class PatternRefused(BrokerError):
    """What is to be watched is no pattern of topic names."""

    code: ClassVar[str] = "InvalidTopicName"


class ServiceNotReady(BrokerError):
    """The broker is starting, stopping, or lost its ZooKeeper session."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True


class StorageUnavailable(BrokerError):
    """The bookies could not store or return an entry in time."""

    code: ClassVar[str] = "PersistenceError"
    retry: ClassVar[bool] = True


class EntryDamaged(StorageUnavailable):
    """Every copy of an entry is damaged, or none is left: it stays away until one is repaired."""


class LedgerGone(StorageUnavailable):
    """A ledger was deleted: trimmed since, or by somebody who should not have."""


class TooManyRequests(BrokerError):
    """The client wants more at once than the broker keeps for one."""

    code: ClassVar[str] = "TooManyRequests"
    retry: ClassVar[bool] = True
