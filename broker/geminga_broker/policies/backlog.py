"""How much a topic's subscriptions may leave unacknowledged, and what happens beyond that. Pure.

The rules are upstream's (``PersistentTopic``, ``BacklogQuotaManager``). Size is that of the backlog
of the slowest durable subscription; age is that of its oldest message. The policies that stop
producers disconnect them, and refuse them when they reconnect; eviction moves the subscriptions
forward until nine tenths of the limit are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_broker.policies.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels
from geminga_protocol.records.cluster.namespaces import BacklogQuota, Policies, RetentionPolicies
from geminga_protocol.records.cluster.topic_policies import TopicPolicies
from geminga_server.config import Upstream

# The types of quotas, by the names that records and requests have for them.
DESTINATION_STORAGE = "destination_storage"
MESSAGE_AGE = "message_age"
QUOTA_TYPES = (DESTINATION_STORAGE, MESSAGE_AGE)
PolicyName = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]

MIB = 1024 * 1024
MINUTE_S = 60
# How much of the limit an eviction leaves: less, so that not every check has to evict again.
# Upstream's ``BacklogQuotaManager`` has the same nine tenths.
TENTHS_LEFT = 9


class QuotaPolicy(Enum):
    """What happens where a limit is reached; the values are upstream's names."""

    HOLD_PRODUCERS = "producer_request_hold"
    REFUSE_PRODUCERS = "producer_exception"
    EVICT_BACKLOG = "consumer_backlog_eviction"

    @property
    def stops_producers(self) -> bool:
        """Whether producers are stopped; otherwise subscriptions lose messages."""
        return self is not QuotaPolicy.EVICT_BACKLOG


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit (bytes or seconds) and what happens where it is reached."""

    limit: int
    policy: QuotaPolicy

    @property
    def target(self) -> int:
        """What an eviction leaves, in the limit's unit."""
        return self.limit * TENTHS_LEFT // 10


@dataclass(frozen=True, slots=True)
class BacklogQuotas:
    """The limits of a topic: ``size`` in bytes, ``age`` in seconds; None is unlimited."""

    size: Quota | None = None
    age: Quota | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether there is nothing to check."""
        return self.size is None and self.age is None


# Of system topics, and of topics without policies.
UNLIMITED = BacklogQuotas()


def _policy(name: str | None) -> QuotaPolicy:
    """The policy of that name. Upstream writes no record without one; for other records holding
    producers is taken, as it loses nothing."""
    # Names of newer versions are unknown here. Such a record must keep no topic from loading.
    known = {each.value: each for each in QuotaPolicy}
    return known.get(name or "", QuotaPolicy.HOLD_PRODUCERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogConfig:
    """What holds where neither topic nor namespace sets it."""

    backlog_quota_bytes: Annotated[int, Ge(-1), Upstream("backlogQuotaDefaultLimitBytes")] = -1
    """How large the backlog of a subscription may be, in bytes, where its namespace does not say;
    -1: no limit."""
    backlog_quota_age_s: Annotated[int, Ge(-1), Upstream("backlogQuotaDefaultLimitSecond")] = -1
    """How old the oldest message of that backlog may be; -1: no limit."""
    backlog_quota_policy: Annotated[PolicyName, Upstream("backlogQuotaDefaultRetentionPolicy")] = (
        "producer_request_hold"
    )
    """What happens beyond the quota: producer_request_hold, producer_exception or
    consumer_backlog_eviction."""
    backlog_quota_check_s: Annotated[
        float, Gt(0), Upstream("backlogQuotaCheckIntervalInSeconds")
    ] = 60.0
    """How often the broker checks backlogs, and so for how long a quota can be exceeded."""


def backlog_quotas(config: BacklogConfig, levels: Levels) -> BacklogQuotas:
    """The quotas of a topic; each type is resolved for itself."""
    # A topic that sets one type of quota keeps the other type of its namespace. Topic over
    # namespace by the union of two mappings: the right one wins.
    quotas = {**levels.namespace.backlog_quota_map, **levels.topic.backlog_quota_map}
    by_size, by_age = quotas.get(DESTINATION_STORAGE), quotas.get(MESSAGE_AGE)
    size_bytes, age_s = config.backlog_quota_bytes, config.backlog_quota_age_s
    size_policy: str | None = config.backlog_quota_policy
    age_policy = size_policy
    # A quota of a nearer level replaces the limit of the broker together with its policy. Never the
    # limit of one level with the policy of another.
    if by_size is not None:
        size_bytes, size_policy = quota_bytes(by_size), by_size.policy
    if by_age is not None:
        age_s, age_policy = by_age.limit_time, by_age.policy
    return BacklogQuotas(
        # As upstream, a size of 0 is a limit, which every topic exceeds; an age of 0 is none.
        None if size_bytes < 0 else Quota(size_bytes, _policy(size_policy)),
        None if age_s <= 0 else Quota(age_s, _policy(age_policy)),
    )


def quota_bytes(quota: BacklogQuota) -> int:
    """The size limit, under its new name or its old one; 0 where neither is set."""
    # The new name counts where both are there: older writers know the old one only, and newer ones
    # write both.
    return (quota.limit or 0) if quota.limit_size is None else quota.limit_size


def is_size_exceeded(quota: Quota | None, backlog_bytes: int) -> bool:
    """Whether the backlog has reached its size limit."""
    # At the limit, not above it: a quota of 0 holds for an empty backlog, too (``backlog_quotas``).
    return quota is not None and backlog_bytes >= quota.limit


def is_age_exceeded(quota: Quota | None, oldest_s: float | None) -> bool:
    """Whether the oldest message, None where there is none, is older than allowed."""
    # Unlike the size, the age has to be above its limit, as upstream: a message that is exactly as
    # old as allowed may stay.
    return quota is not None and oldest_s is not None and oldest_s > quota.limit


def checked_quota(namespace: str, quota: BacklogQuota) -> BacklogQuota:
    """``quota`` as it is stored, with its limit under both names. Raises ``InvalidPolicy``."""
    refused = f"Set namespace[{namespace}] backlog quota failed because the data validation failed."
    if quota.policy not in {each.value for each in QuotaPolicy}:
        raise InvalidPolicy(f"{refused} the attribute policy cannot be null")
    # Stored under both names: clients and brokers of older versions know the old one only.
    size_bytes = quota_bytes(quota)
    if abs(size_bytes) > LONG_MAX or abs(quota.limit_time) > INT_MAX:
        raise InvalidPolicy(f"{refused} a limit is too large")
    return BacklogQuota(
        limit=size_bytes,
        limit_size=size_bytes,
        limit_time=quota.limit_time,
        policy=quota.policy,
    )


def check_quota_within_retention(
    policies: Policies | TopicPolicies, quota: BacklogQuota, kind: str
) -> None:
    """Raise ``ConflictingPolicies`` unless a quota to be set, of the type ``kind``, is below what
    the present ``policies`` retain."""
    # Only the quota by size is compared with retention.
    if kind == DESTINATION_STORAGE and not _is_within(quota, policies.retention):
        raise ConflictingPolicies(
            "Backlog Quota exceeds configured retention quota for namespace. "
            "Please increase retention quota and retry"
        )


def check_retention_covers_quota(
    policies: Policies | TopicPolicies, retention: RetentionPolicies, _: str
) -> None:
    """Raise ``ConflictingPolicies`` likewise, for a retention that is to be set."""
    if not _is_within(policies.backlog_quota_map.get(DESTINATION_STORAGE), retention):
        raise ConflictingPolicies(
            "Retention Quota must exceed configured backlog quota for namespace."
        )


def _is_within(quota: BacklogQuota | None, retention: RetentionPolicies | None) -> bool:
    """Whether the quota is below the retention, where that is limited. As upstream, only the quota
    by size is compared, but its time limit, too."""
    if quota is None or retention is None:
        return True
    # A retention of 0 keeps nothing, and one of -1 everything: neither is compared with a quota.
    has_size, has_time = retention.size_mib > 0, retention.time_minutes > 0
    if has_size and quota_bytes(quota) >= retention.size_mib * MIB:
        return False
    return not (has_time and quota.limit_time >= retention.time_minutes * MINUTE_S)
