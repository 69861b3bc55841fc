"""What the policies of its namespace mean for a topic. Pure.

The policies of single topics will come between the namespace's and the broker's own settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from geminga_broker.compaction.options import CompactionOptions
from geminga_broker.delayed.options import DelayedOptions
from geminga_broker.log.options import LogOptions
from geminga_broker.log.retention import FOR_EVER, Retention
from geminga_broker.metadata.errors import InvalidPolicy
from geminga_broker.metadata.policy_rules import check_persistence
from geminga_broker.metadata.system_topics import is_system_topic
from geminga_broker.subscriptions.expiry import KEEP_ALL, Expiry, ExpiryOptions
from geminga_broker.subscriptions.unacknowledged_limits import LIMITS_DEFAULT, UnacknowledgedLimits
from geminga_broker.topics.backlog_quota import UNLIMITED, BacklogQuotas, quotas_of
from geminga_broker.topics.consuming.dispatch_policies import (
    DispatchOptions,
    DispatchPolicies,
    dispatch_policies,
)
from geminga_broker.topics.consuming.subscribe_policies import (
    SubscribeOptions,
    SubscribePolicies,
    subscribe_policies,
)
from geminga_broker.topics.inactivity import NEVER, Inactivity, inactivity
from geminga_broker.topics.producing.publish_policies import (
    DEFAULT_OPTIONS,
    PublishOptions,
    PublishPolicies,
    publish_policies,
)
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.namespaces import (
    DelayedDelivery,
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)

SUBSCRIBE_FREELY = SubscribePolicies()
DISPATCH_FREELY = DispatchPolicies()
MINUTE_MS = 60_000
MIB = 1024 * 1024
# However seldom a cursor may be stored: what a crash forgets is at most so much.
CURSOR_FLUSH_DELAY_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """How a topic's log is kept, what of it is retained, how large its backlog may be, how it may
    be published to, how much of it may be with consumers, how long it lives, who may
    subscribe, and how fast its consumers are served."""

    log: LogOptions = field(default_factory=LogOptions)
    retention: Retention = field(default_factory=Retention)
    quotas: BacklogQuotas = UNLIMITED
    publishing: PublishPolicies = field(default_factory=PublishPolicies)
    unacknowledged: UnacknowledgedLimits = LIMITS_DEFAULT
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    delayed: DelayedOptions = field(default_factory=DelayedOptions)
    expiry: Expiry = KEEP_ALL
    subscribing: SubscribePolicies = SUBSCRIBE_FREELY
    inactivity: Inactivity = NEVER
    dispatching: DispatchPolicies = DISPATCH_FREELY

    @classmethod
    def default(
        cls,
        options: LogOptions,
        quotas: BacklogQuotas,
        publishing: PublishOptions = DEFAULT_OPTIONS,
        unacknowledged: UnacknowledgedLimits = LIMITS_DEFAULT,
        compaction: CompactionOptions | None = None,
        delayed: DelayedOptions | None = None,
        expiry: ExpiryOptions | None = None,
        subscribing: SubscribeOptions | None = None,
        inactivity: Inactivity = NEVER,
        dispatching: DispatchOptions | None = None,
    ) -> TopicPolicies:
        """What holds where a namespace says nothing: the broker's settings."""
        return cls(
            options,
            Retention(options.retention_time_ms, options.retention_bytes),
            quotas,
            PublishPolicies.default(publishing),
            unacknowledged,
            compaction or CompactionOptions(),
            delayed or DelayedOptions(),
            KEEP_ALL
            if expiry is None
            else Expiry(expiry.ttl_default_s, expiry.delayed_from_delivery),
            SUBSCRIBE_FREELY if subscribing is None else SubscribePolicies.default(subscribing),
            inactivity,
            DISPATCH_FREELY if dispatching is None else DispatchPolicies.default(dispatching),
        )


def topic_policies(
    topic: TopicName, policies: Policies, default: TopicPolicies, *, cluster: str = "standalone"
) -> TopicPolicies:
    """What holds for ``topic`` in a namespace with ``policies``, on brokers of ``cluster``."""
    return TopicPolicies(
        log=_log_options(policies.persistence, default.log),
        retention=_retention(policies.retention, default.retention),
        # The brokers write to these themselves: they must go on.
        quotas=UNLIMITED
        if is_system_topic(topic)
        else quotas_of(policies.backlog_quota_map, default.quotas),
        publishing=publish_policies(policies, default.publishing, cluster),
        unacknowledged=default.unacknowledged.overridden(
            policies.unacked_per_consumer_max, policies.unacked_per_subscription_max
        ),
        compaction=_compaction(policies.compaction_threshold_bytes, default.compaction),
        delayed=_delayed(policies.delayed_delivery, default.delayed),
        expiry=KEEP_ALL
        if is_system_topic(topic)
        else _expiry(policies.message_ttl_s, default.expiry),
        subscribing=SUBSCRIBE_FREELY
        if is_system_topic(topic)
        else subscribe_policies(policies, default.subscribing, cluster),
        inactivity=NEVER if is_system_topic(topic) else inactivity(policies, default.inactivity),
        dispatching=DISPATCH_FREELY
        if is_system_topic(topic)
        else dispatch_policies(policies, default.dispatching, cluster),
    )


def _expiry(ttl_s: int | None, default: Expiry) -> Expiry:
    """``ttl_s`` below 0 is as good as none, as upstream has it."""
    if ttl_s is None or ttl_s < 0:
        return default
    return replace(default, ttl_s=ttl_s)


def _delayed(policies: DelayedDelivery | None, default: DelayedOptions) -> DelayedOptions:
    if policies is None:
        return default
    return replace(
        default,
        enabled=policies.active,
        tick_ms=max(1, policies.tick_ms),
        delay_max_ms=max(0, policies.delay_max_ms),
    )


def _compaction(threshold_bytes: int | None, default: CompactionOptions) -> CompactionOptions:
    if threshold_bytes is None:
        return default
    return replace(default, threshold_bytes=max(threshold_bytes, 0))


def _log_options(persistence: PersistencePolicies | None, default: LogOptions) -> LogOptions:
    if persistence is None:
        return default
    try:
        check_persistence(persistence)
    except InvalidPolicy:
        return default  # written by somebody who did not check: no ledger could be created so
    return replace(
        default,
        ensemble_size=persistence.ensemble,
        write_quorum=persistence.write_quorum,
        ack_quorum=persistence.ack_quorum,
        cursor_flush_delay_s=_flush_delay_s(
            persistence.mark_delete_rate_max, default.cursor_flush_delay_s
        ),
    )


def _flush_delay_s(rate_max: float, default_s: float) -> float:
    """Between two writes of a cursor that nobody waits for, at ``rate_max`` a second (0: any)."""
    if not rate_max > 0:
        return default_s
    return max(default_s, min(1 / rate_max, CURSOR_FLUSH_DELAY_S_MAX))


def _retention(policies: RetentionPolicies | None, default: Retention) -> Retention:
    if policies is None:
        return default
    return Retention(
        time_ms=_scaled(policies.time_minutes, MINUTE_MS),
        size_bytes=_scaled(policies.size_mib, MIB),
    )


def _scaled(limit: int, unit: int) -> int:
    return FOR_EVER if limit < 0 else limit * unit
