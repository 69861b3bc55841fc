"""Which policies a namespace may have: upstream's rules and upstream's words. Pure.

Numbers are bounded as Java's are there (``int``, ``long``): a larger one would make the record
unreadable for a Java broker of the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.metadata.errors import ConflictingPolicies, InvalidPolicy
from geminga_protocol.records.namespaces import (
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PersistencePolicies,
    RetentionPolicies,
    SubscribeRate,
)

BOOKIES_MAX = 5
"""So many bookies at most may a namespace ask for (upstream's, a constant there too)."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
UNLIMITED = -1

DESTINATION_STORAGE = "destination_storage"
MESSAGE_AGE = "message_age"
QUOTA_TYPES = (DESTINATION_STORAGE, MESSAGE_AGE)

PRODUCER_REQUEST_HOLD = "producer_request_hold"
PRODUCER_EXCEPTION = "producer_exception"
CONSUMER_BACKLOG_EVICTION = "consumer_backlog_eviction"
QUOTA_POLICIES = (PRODUCER_REQUEST_HOLD, PRODUCER_EXCEPTION, CONSUMER_BACKLOG_EVICTION)

# Each partition is a topic with ledgers and cursors of its own; upstream's largest advice is 1000.
PARTITIONS_MAX = 10_000
PARTITIONED = "partitioned"
TOPIC_TYPES = (PARTITIONED, "non-partitioned")

WHEN_NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
WHEN_CAUGHT_UP = "delete_when_subscriptions_caught_up"
DELETE_MODES = (WHEN_NO_SUBSCRIPTIONS, WHEN_CAUGHT_UP)

_MIB = 1024 * 1024
_MINUTE_S = 60


def check_persistence(policies: PersistencePolicies) -> None:
    """Raise ``InvalidPolicy`` for quorums that no ledger can have."""
    sizes = {
        "Ensemble": policies.ensemble,
        "WriteQuorum": policies.write_quorum,
        "AckQuorum": policies.ack_quorum,
    }
    for name, size in sizes.items():
        if not 0 < size <= BOOKIES_MAX:
            raise InvalidPolicy(f"Bookkeeper-{name} must be <= {BOOKIES_MAX} and > 0.")
    if not policies.ensemble >= policies.write_quorum >= policies.ack_quorum:
        raise InvalidPolicy(
            f"Bookkeeper Ensemble ({policies.ensemble}) >= WriteQuorum ({policies.write_quorum}) "
            f">= AckQuorum ({policies.ack_quorum})"
        )


def check_retention(policies: RetentionPolicies) -> None:
    """Raise ``InvalidPolicy`` for limits that contradict each other."""
    time, size = policies.time_minutes, policies.size_mib
    if time < UNLIMITED:
        raise InvalidPolicy("Invalid retention policy: time limit must be >= -1")
    if size < UNLIMITED:
        raise InvalidPolicy("Invalid retention policy: size limit must be >= -1")
    if time > INT_MAX or size > LONG_MAX:
        raise InvalidPolicy("Invalid retention policy: a limit is too large")
    if (time == 0) != (size == 0):
        raise InvalidPolicy(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when "
            "one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a "
            "specific limit. To disable retention both limits must be set to 0."
        )


def check_delayed_delivery(policies: DelayedDelivery) -> None:
    """Raise ``InvalidPolicy`` for times that are none."""
    if not 0 <= policies.tick_ms <= LONG_MAX:
        raise InvalidPolicy("Tick time must be a positive number of milliseconds")
    if not 0 <= policies.delay_max_ms <= LONG_MAX:
        raise InvalidPolicy("The max delay must be a positive number of milliseconds, 0 for any")


def check_auto_topic_creation(policy: AutoTopicCreation) -> None:
    """Raise ``InvalidPolicy`` for a type there is not, or a number of partitions that cannot be."""
    if not policy.allowed:
        return
    refused = "Invalid configuration for autoTopicCreationOverride. the detail is "
    count = policy.default_num_partitions
    if policy.topic_type not in TOPIC_TYPES:
        raise InvalidPolicy(f"{refused}Unknown topic type [{policy.topic_type}]")
    if policy.topic_type != PARTITIONED:
        if count is not None:
            raise InvalidPolicy(
                f"{refused}[defaultNumPartitions] is not allowed to be set when the type is "
                "non-partition."
            )
    elif count is None:
        raise InvalidPolicy(
            f"{refused}[defaultNumPartitions] cannot be null when the type is partitioned."
        )
    elif not 0 < count <= PARTITIONS_MAX:
        raise InvalidPolicy(
            f"{refused}[defaultNumPartitions] cannot be less than 1 or more than {PARTITIONS_MAX} "
            "for partition type."
        )


def check_inactive_topics(policy: InactiveTopics) -> None:
    """Raise ``InvalidPolicy`` for a mode there is not, or a time in which nobody could come."""
    if policy.delete_mode not in DELETE_MODES:
        raise InvalidPolicy(f"inactiveTopicDeleteMode should be one of {', '.join(DELETE_MODES)}")
    if not 0 < policy.inactive_s_max <= INT_MAX:
        raise InvalidPolicy("maxInactiveDurationSeconds must be > 0")


def check_dispatch_rate(rate: DispatchRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that nobody can keep."""
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise InvalidPolicy("A dispatch rate is too large")
    _check_period(rate.period_s)


def check_subscribe_rate(rate: SubscribeRate) -> None:
    """Raise ``InvalidPolicy`` for a rate that nobody can keep."""
    if abs(rate.per_consumer) > INT_MAX:
        raise InvalidPolicy("A subscribe rate is too large")
    _check_period(rate.period_s)


def _check_period(period_s: int) -> None:
    if not 0 < period_s <= INT_MAX:
        raise InvalidPolicy("ratePeriodInSecond must be a number of seconds, 1 or more")


def checked_quota(namespace: str, quota: BacklogQuota) -> BacklogQuota:
    """``quota`` as it is stored, with its limit under both names. Raises ``InvalidPolicy``."""
    refused = f"Set namespace[{namespace}] backlog quota failed because the data validation failed."
    if quota.policy not in QUOTA_POLICIES:
        raise InvalidPolicy(f"{refused} the attribute policy cannot be null")
    size_bytes = quota_bytes(quota)
    if abs(size_bytes) > LONG_MAX or abs(quota.limit_time) > INT_MAX:
        raise InvalidPolicy(f"{refused} a limit is too large")
    return BacklogQuota(
        limit=size_bytes,
        limit_size=size_bytes,
        limit_time=quota.limit_time,
        policy=quota.policy,
    )


def quota_bytes(quota: BacklogQuota) -> int:
    """The size limit, under its new name or its old one; 0 where neither is given."""
    return (quota.limit or 0) if quota.limit_size is None else quota.limit_size


def check_quota_within_retention(
    quota: BacklogQuota | None, retention: RetentionPolicies | None
) -> None:
    """Raise ``ConflictingPolicies`` unless what may be unacknowledged is less than what is kept.

    For a quota that is to be set; None is the broker's own, which has no limit here.
    """
    if not _is_within(quota, retention):
        raise ConflictingPolicies(
            "Backlog Quota exceeds configured retention quota for namespace. "
            "Please increase retention quota and retry"
        )


def check_retention_covers_quota(
    retention: RetentionPolicies, quotas: Mapping[str, BacklogQuota]
) -> None:
    """Raise ``ConflictingPolicies`` likewise, for a retention that is to be set."""
    if not _is_within(quotas.get(DESTINATION_STORAGE), retention):
        raise ConflictingPolicies(
            "Retention Quota must exceed configured backlog quota for namespace."
        )


def _is_within(quota: BacklogQuota | None, retention: RetentionPolicies | None) -> bool:
    """Upstream compares the storage quota alone, its time limit included."""
    if quota is None or retention is None:
        return True
    has_size, has_time = retention.size_mib > 0, retention.time_minutes > 0
    if has_size and quota_bytes(quota) >= retention.size_mib * _MIB:
        return False
    return not (has_time and quota.limit_time >= retention.time_minutes * _MINUTE_S)
