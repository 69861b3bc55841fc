"""Deduplication, limits on producers, encryption and rates of publishing to a topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels, nearest, nearest_limit
from geminga_protocol.records.cluster.namespaces import PublishRate
from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """How many messages and bytes may be published a second; 0 and below: any number."""

    messages_per_s: int = 0
    bytes_per_s: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages_per_s <= 0 and self.bytes_per_s <= 0


UNLIMITED = PublishLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishConfig:
    """What holds where neither topic nor namespace sets it, and settings that no policy changes;
    the defaults are upstream's."""

    deduplication: Annotated[bool, Upstream("brokerDeduplicationEnabled")] = False
    """Whether a message that is sent twice is stored once."""
    deduplication_producers_max: Annotated[
        int, Gt(0), Upstream("brokerDeduplicationMaxNumberOfProducers")
    ] = 10_000
    """For how many producers of a topic the last sequence id is kept."""
    deduplication_snapshot_entries: Annotated[
        int, Gt(0), Upstream("brokerDeduplicationEntriesInterval")
    ] = 1000
    """After how many entries a snapshot of these ids is written: no more are read again when a
    topic is loaded after a crash."""
    deduplication_snapshot_interval_s: Annotated[
        int, Ge(0), Upstream("brokerDeduplicationSnapshotIntervalSeconds")
    ] = 120
    """After how many seconds a snapshot is written, if something was published; 0: not by time."""
    deduplication_check_s: Annotated[
        float, Gt(0), Upstream("brokerDeduplicationSnapshotFrequencyInSeconds")
    ] = 120.0
    """How often the broker checks whether snapshots are due by time."""
    deduplication_producer_idle_s: Annotated[
        float, Gt(0), Upstream("brokerDeduplicationProducerInactivityTimeoutMinutes", 60)
    ] = 360 * 60.0
    """After how long without the producer its last sequence id is forgotten."""
    producers_per_topic_max: Annotated[int, Ge(0), Upstream("maxProducersPerTopic")] = 0
    """How many producers a topic may have; 0: any number."""
    same_address_producers_per_topic_max: Annotated[
        int, Ge(0), Upstream("maxSameAddressProducersPerTopic")
    ] = 0
    """How many producers of a topic may be on one host; 0: any number."""
    encryption_required: Annotated[bool, Upstream("encryptionRequireOnProducer")] = False
    """Whether producers must encrypt their messages."""
    topic_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("maxPublishRatePerTopicInMessages")
    ] = 0
    """How many messages may be published to a topic a second; 0: any number."""
    topic_bytes_per_s_max: Annotated[int, Ge(0), Upstream("maxPublishRatePerTopicInBytes")] = 0
    """How many bytes may be published to a topic a second; 0: any number."""
    broker_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("brokerPublisherThrottlingMaxMessageRate")
    ] = 0
    """How many messages may be published to all topics of a broker a second; 0: any number."""
    broker_bytes_per_s_max: Annotated[
        int, Ge(0), Upstream("brokerPublisherThrottlingMaxByteRate")
    ] = 0
    """How many bytes may be published to all topics of a broker a second; 0: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPolicies:
    """What holds for one topic; 0 is any number."""

    deduplicates: bool = False
    # Seconds between two snapshots of deduplication, where something was published; 0: not by time.
    snapshot_interval_s: int = 0
    producers_max: int = 0
    producers_per_host_max: int = 0
    requires_encryption: bool = False
    limits: PublishLimits = UNLIMITED


# Of system topics: brokers must be able to write to them.
PUBLISH_FREELY = PublishPolicies()


def publish_policies(config: PublishConfig, levels: Levels) -> PublishPolicies:
    """The publish policies of a topic."""
    topic, namespace = levels.topic, levels.namespace
    return PublishPolicies(
        # Any level may turn it off again, unlike encryption below.
        deduplicates=nearest(
            topic.deduplication_enabled, namespace.deduplication_enabled, config.deduplication
        ),
        snapshot_interval_s=nearest(
            topic.deduplication_snapshot_interval_s,
            namespace.deduplication_snapshot_interval_s,
            config.deduplication_snapshot_interval_s,
        ),
        # 0 is a limit's value for "any number" and hides the levels behind it; a negative one does
        # not.
        producers_max=nearest_limit(
            topic.producers_per_topic_max,
            namespace.producers_per_topic_max,
            config.producers_per_topic_max,
        ),
        # Only the broker can set it, as upstream.
        producers_per_host_max=config.same_address_producers_per_topic_max,
        # Each level can only require it: the broker's setting cannot be taken back. A security rule
        # of an operator, which a tenant must not be able to lift.
        requires_encryption=config.encryption_required or namespace.encryption_required,
        limits=nearest(
            _limits(topic.publish_max_message_rate),
            # A namespace may have another rate in each cluster.
            _limits(namespace.publish_max_message_rate.get(levels.cluster)),
            PublishLimits(config.topic_messages_per_s_max, config.topic_bytes_per_s_max),
        ),
    )


def _limits(rate: PublishRate | None) -> PublishLimits | None:
    """None for a rate that limits nothing: as upstream, it counts as not set."""
    if rate is None or (rate.messages <= 0 and rate.size_bytes <= 0):
        return None
    # One of the two may be 0 or less: ``PublishRate`` has no bucket for it.
    return PublishLimits(rate.messages, rate.size_bytes)


def check_publish_rate(rate: PublishRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that Java cannot read."""
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise InvalidPolicy("A publish rate is too large")
