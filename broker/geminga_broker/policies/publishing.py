"""How a topic may be published to: whether repeats are stored, by how many, how fast. Pure."""

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
    """How much a second; 0 and below: any number."""

    messages_per_s: int = 0
    bytes_per_s: int = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to count."""
        return self.messages_per_s <= 0 and self.bytes_per_s <= 0


UNLIMITED = PublishLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishConfig:
    """What holds where neither topic nor namespace says something, and what no policy changes;
    the defaults are upstream's."""

    deduplication: Annotated[bool, Upstream("brokerDeduplicationEnabled")] = False
    """Whether a message that is sent again is stored once."""
    deduplication_producers_max: Annotated[
        int, Gt(0), Upstream("brokerDeduplicationMaxNumberOfProducers")
    ] = 10_000
    """Of so many producers of a topic is it kept what they sent."""
    deduplication_snapshot_entries: Annotated[
        int, Gt(0), Upstream("brokerDeduplicationEntriesInterval")
    ] = 1000
    """So often is that written, counted in entries: no more are read again when a topic is loaded
    after a crash,"""
    deduplication_snapshot_interval_s: Annotated[
        int, Ge(0), Upstream("brokerDeduplicationSnapshotIntervalSeconds")
    ] = 120
    """or by time; 0: not by time."""
    deduplication_check_s: Annotated[
        float, Gt(0), Upstream("brokerDeduplicationSnapshotFrequencyInSeconds")
    ] = 120.0
    """How often it is looked whose time has come."""
    deduplication_producer_idle_s: Annotated[
        float, Gt(0), Upstream("brokerDeduplicationProducerInactivityTimeoutMinutes", 60)
    ] = 360 * 60.0
    """A producer that is away for so long is forgotten."""
    producers_per_topic_max: Annotated[int, Ge(0), Upstream("maxProducersPerTopic")] = 0
    """So many producers may a topic have; 0: any number."""
    same_address_producers_per_topic_max: Annotated[
        int, Ge(0), Upstream("maxSameAddressProducersPerTopic")
    ] = 0
    """So many of them may be clients of one host; 0: any number."""
    encryption_required: Annotated[bool, Upstream("encryptionRequireOnProducer")] = False
    """Whether producers must encrypt what they send."""
    topic_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("maxPublishRatePerTopicInMessages")
    ] = 0
    """How fast may be published to a topic; 0: any rate."""
    topic_bytes_per_s_max: Annotated[int, Ge(0), Upstream("maxPublishRatePerTopicInBytes")] = 0
    """The same in bytes."""
    broker_messages_per_s_max: Annotated[
        int, Ge(0), Upstream("brokerPublisherThrottlingMaxMessageRate")
    ] = 0
    """How fast may be published to all topics of a broker together; 0: any rate."""
    broker_bytes_per_s_max: Annotated[
        int, Ge(0), Upstream("brokerPublisherThrottlingMaxByteRate")
    ] = 0
    """The same in bytes."""

    @property
    def topic_limits(self) -> PublishLimits:
        """What a topic may be published to, where no level above says."""
        return PublishLimits(self.topic_messages_per_s_max, self.topic_bytes_per_s_max)

    @property
    def broker_limits(self) -> PublishLimits:
        """What the broker as a whole may be published to."""
        return PublishLimits(self.broker_messages_per_s_max, self.broker_bytes_per_s_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPolicies:
    """What holds for one topic; 0 is any number."""

    deduplicates: bool = False
    snapshot_interval_s: int = 0
    producers_max: int = 0
    producers_per_host_max: int = 0
    requires_encryption: bool = False
    limits: PublishLimits = UNLIMITED


PUBLISH_FREELY = PublishPolicies()


def publish_policies(config: PublishConfig, said: Levels) -> PublishPolicies:
    """What holds for a topic of which the levels say this."""
    topic, namespace = said.topic, said.namespace
    return PublishPolicies(
        deduplicates=nearest(
            topic.deduplication_enabled, namespace.deduplication_enabled, config.deduplication
        ),
        snapshot_interval_s=nearest(
            topic.deduplication_snapshot_interval_s,
            namespace.deduplication_snapshot_interval_s,
            config.deduplication_snapshot_interval_s,
        ),
        producers_max=nearest_limit(
            topic.producers_per_topic_max,
            namespace.producers_per_topic_max,
            config.producers_per_topic_max,
        ),
        producers_per_host_max=config.same_address_producers_per_topic_max,
        requires_encryption=config.encryption_required or namespace.encryption_required,
        limits=nearest(
            _limits(topic.publish_max_message_rate),
            _limits(namespace.publish_max_message_rate.get(said.cluster)),
            config.topic_limits,
        ),
    )


def _limits(rate: PublishRate | None) -> PublishLimits | None:
    """None for a rate that limits nothing: it is as good as none, as upstream has it."""
    if rate is None or (rate.messages <= 0 and rate.size_bytes <= 0):
        return None
    return PublishLimits(rate.messages, rate.size_bytes)


def check_publish_rate(rate: PublishRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that no record of upstream's can hold."""
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise InvalidPolicy("A publish rate is too large")
