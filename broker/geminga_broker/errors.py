"""The broker's error tree. ``code`` is the name of the ``ServerError`` that a client is sent.

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


# Subclasses have ``code``, and ``retry`` where the same request may succeed later. The texts of
# many are upstream's, as clients and tools match them. Sessions send ``code`` with the text; REST
# turns the class into a status (``admin.statuses``).
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
    """The topic is replicated, and only deleted by force: the other clusters would keep it, and it
    would be created again by the next message from there."""

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
    """The topic was terminated: it never takes another message; those it has can be read."""

    # Clients close the producer for good on this one, and go on retrying on most others.
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
    """The subscription does not exist, and subscribing does not create it."""

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
    """A Key_Shared consumer asks for keys that it cannot get."""

    code: ClassVar[str] = "ConsumerAssignError"


class ProducerBusy(BrokerError):
    """A producer of the same name is connected."""

    code: ClassVar[str] = "ProducerBusy"
    retry: ClassVar[bool] = True


class NameReserved(BrokerError):
    """The name is reserved for the broker itself, or empty."""

    code: ClassVar[str] = "ProducerBusy"  # upstream's, for subscriptions too


class ProducerFenced(BrokerError):
    """Another producer has exclusive access to the topic."""

    code: ClassVar[str] = "ProducerFenced"


class ProducerHeldByQuota(BrokerError):
    """The topic's backlog exceeds its quota; a client that can wait retries until it does not."""

    code: ClassVar[str] = "ProducerBlockedQuotaExceededError"
    retry: ClassVar[bool] = True


class ProducerRefusedByQuota(BrokerError):
    """The topic's backlog exceeds its quota, and the policy is to fail its producers."""

    code: ClassVar[str] = "ProducerBlockedQuotaExceededException"


class NotAllowed(BrokerError):
    """The request is understood and not permitted here."""

    code: ClassVar[str] = "NotAllowedError"


class InvalidRequest(BrokerError):
    """A field is missing, contradicts another, or has an impossible value."""

    code: ClassVar[str] = "MetadataError"


class PatternRefused(BrokerError):
    """The pattern of a topic list watcher is not a pattern of topic names."""

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
    """Every replica of an entry is damaged or lost: it is not readable until one is repaired."""


class LedgerGone(StorageUnavailable):
    """A ledger does not exist any more: it was trimmed meanwhile, or deleted by mistake."""


class TooManyRequests(BrokerError):
    """The client has more requests, or watchers, at once than the broker serves."""

    code: ClassVar[str] = "TooManyRequests"
    retry: ClassVar[bool] = True
