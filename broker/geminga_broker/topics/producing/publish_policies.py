"""How a topic may be published to: what a broker is told, and what holds for a topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.topics.producing.publish_rate import PublishLimits
from geminga_protocol.records.namespaces import Policies

UNLIMITED = PublishLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The broker's settings, which hold where a namespace says nothing; upstream's names in
    brackets, its defaults here."""

    deduplication: bool = False
    """Whether a message that is sent again is stored once (brokerDeduplicationEnabled)."""
    deduplication_producers_max: Annotated[int, Gt(0)] = 10_000
    """Of so many producers of a topic is it kept what they sent
    (brokerDeduplicationMaxNumberOfProducers)."""
    deduplication_snapshot_entries: Annotated[int, Gt(0)] = 1000
    """So often is that written, counted in entries (brokerDeduplicationEntriesInterval): no more
    are read again when a topic is loaded after a crash,"""
    deduplication_snapshot_interval_s: Annotated[int, Ge(0)] = 120
    """or by time; 0: not by time (brokerDeduplicationSnapshotIntervalSeconds)."""
    deduplication_check_s: Annotated[float, Gt(0)] = 120.0
    """How often it is looked whose time has come (brokerDeduplicationSnapshotFrequencyInSeconds).
    """
    deduplication_producer_idle_s: Annotated[float, Gt(0)] = 360 * 60.0
    """A producer that is away for so long is forgotten
    (brokerDeduplicationProducerInactivityTimeoutMinutes)."""
    producers_per_topic_max: Annotated[int, Ge(0)] = 0
    """So many producers may a topic have; 0: any number (maxProducersPerTopic)."""
    same_address_producers_per_topic_max: Annotated[int, Ge(0)] = 0
    """So many of them may be clients of one host; 0: any number
    (maxSameAddressProducersPerTopic)."""
    encryption_required: bool = False
    """Whether producers must encrypt what they send (encryptionRequireOnProducer)."""
    topic_messages_per_s_max: Annotated[int, Ge(0)] = 0
    """How fast may be published to a topic; 0: any rate (maxPublishRatePerTopicInMessages)."""
    topic_bytes_per_s_max: Annotated[int, Ge(0)] = 0
    """The same in bytes (maxPublishRatePerTopicInBytes)."""
    broker_messages_per_s_max: Annotated[int, Ge(0)] = 0
    """How fast may be published to all topics of a broker together; 0: any rate
    (brokerPublisherThrottlingMaxMessageRate)."""
    broker_bytes_per_s_max: Annotated[int, Ge(0)] = 0
    """The same in bytes (brokerPublisherThrottlingMaxByteRate)."""


DEFAULT_OPTIONS = PublishOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPolicies:
    """What holds for one topic."""

    deduplicates: bool = False
    snapshot_interval_s: int = 0
    producers_max: int = 0
    producers_per_host_max: int = 0
    requires_encryption: bool = False
    limits: PublishLimits = UNLIMITED

    @classmethod
    def default(cls, options: PublishOptions) -> PublishPolicies:
        """What holds where a namespace says nothing."""
        return cls(
            deduplicates=options.deduplication,
            snapshot_interval_s=options.deduplication_snapshot_interval_s,
            producers_max=options.producers_per_topic_max,
            producers_per_host_max=options.same_address_producers_per_topic_max,
            requires_encryption=options.encryption_required,
            limits=PublishLimits(options.topic_messages_per_s_max, options.topic_bytes_per_s_max),
        )


DEFAULT_POLICIES = PublishPolicies()


def publish_policies(policies: Policies, default: PublishPolicies, cluster: str) -> PublishPolicies:
    """What holds in a namespace with ``policies`` on the brokers of ``cluster``."""
    producers_max = policies.producers_per_topic_max
    rate = policies.publish_max_message_rate.get(cluster)
    interval_s = policies.deduplication_snapshot_interval_s
    is_enabled = policies.deduplication_enabled
    held = replace(
        default,
        deduplicates=default.deduplicates if is_enabled is None else is_enabled,
        snapshot_interval_s=default.snapshot_interval_s if interval_s is None else interval_s,
        producers_max=default.producers_max if producers_max is None else producers_max,
        requires_encryption=default.requires_encryption or policies.encryption_required,
        limits=default.limits if rate is None else PublishLimits(rate.messages, rate.size_bytes),
    )
    # There may be very many topics, most of which hold to the default.
    return default if held == default else held
