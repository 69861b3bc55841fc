"""How much a topic's subscriptions may leave unacknowledged, and what happens beyond that. Pure.

The rules are upstream's (``PersistentTopic``, ``BacklogQuotaManager``). Size is what lies behind
the slowest durable subscription; age is that of its oldest message. The policies that stop
producers let those who are connected go, and refuse them when they come back; eviction moves the
subscriptions on until nine tenths of the limit are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from geminga_broker.policies.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels
from geminga_protocol.records.cluster.namespaces import BacklogQuota, RetentionPolicies
from geminga_server.config import Upstream

DESTINATION_STORAGE = "destination_storage"
MESSAGE_AGE = "message_age"
QUOTA_TYPES = (DESTINATION_STORAGE, MESSAGE_AGE)
PolicyName = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]

MIB = 1024 * 1024
MINUTE_S = 60
# So much of the limit does an eviction leave.
TENTHS_LEFT = 9


class QuotaPolicy(Enum):
    """What happens where a limit is reached; the values are upstream's names."""

    HOLD_PRODUCERS = "producer_request_hold"
    REFUSE_PRODUCERS = "producer_exception"
    EVICT_BACKLOG = "consumer_backlog_eviction"

    @property
    def stops_producers(self) -> bool:
        """Whether producers pay, not subscriptions."""
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


UNLIMITED = BacklogQuotas()


def size_quota(limit_bytes: int, policy: str | None) -> Quota | None:
    """None for a limit below 0; one of 0 is reached by every topic, as upstream has it."""
    return None if limit_bytes < 0 else Quota(limit_bytes, _policy(policy))


def age_quota(limit_s: int, policy: str | None) -> Quota | None:
    """None for a limit of 0 or below."""
    return None if limit_s <= 0 else Quota(limit_s, _policy(policy))


def _policy(name: str | None) -> QuotaPolicy:
    """What upstream writes no record without; holding producers loses nothing."""
    known = {each.value: each for each in QuotaPolicy}
    return known.get(name or "", QuotaPolicy.HOLD_PRODUCERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogConfig:
    """What holds where neither topic nor namespace says something."""

    backlog_quota_bytes: Annotated[int, Ge(-1), Upstream("backlogQuotaDefaultLimitBytes")] = -1
    """What a subscription may leave unread where its namespace does not say; -1: no limit."""
    backlog_quota_age_s: Annotated[int, Ge(-1), Upstream("backlogQuotaDefaultLimitSecond")] = -1
    """How old what it left unread may be; -1: no limit."""
    backlog_quota_policy: Annotated[PolicyName, Upstream("backlogQuotaDefaultRetentionPolicy")] = (
        "producer_request_hold"
    )
    """What happens beyond: producer_request_hold, producer_exception or consumer_backlog_eviction.
    """
    backlog_quota_check_s: Annotated[
        float, Gt(0), Upstream("backlogQuotaCheckIntervalInSeconds")
    ] = 60.0
    """How often backlogs are looked at: so long can a quota be exceeded."""


def backlog_quotas(config: BacklogConfig, said: Levels) -> BacklogQuotas:
    """What holds for a topic of which the levels say this; each type of quota for itself."""
    quotas = {**said.namespace.backlog_quota_map, **said.topic.backlog_quota_map}
    by_size, by_age = quotas.get(DESTINATION_STORAGE), quotas.get(MESSAGE_AGE)
    policy = config.backlog_quota_policy
    return BacklogQuotas(
        size_quota(config.backlog_quota_bytes, policy)
        if by_size is None
        else size_quota(quota_bytes(by_size), by_size.policy),
        age_quota(config.backlog_quota_age_s, policy)
        if by_age is None
        else age_quota(by_age.limit_time, by_age.policy),
    )


def quota_bytes(quota: BacklogQuota) -> int:
    """The size limit, under its new name or its old one; 0 where neither is given."""
    return (quota.limit or 0) if quota.limit_size is None else quota.limit_size


def is_size_exceeded(quota: Quota | None, backlog_bytes: int) -> bool:
    """Whether the backlog has reached its size."""
    return quota is not None and backlog_bytes >= quota.limit


def is_age_exceeded(quota: Quota | None, oldest_s: float | None) -> bool:
    """Whether the oldest message, None where there is none, is older than allowed."""
    return quota is not None and oldest_s is not None and oldest_s > quota.limit


def checked_quota(namespace: str, quota: BacklogQuota) -> BacklogQuota:
    """``quota`` as it is stored, with its limit under both names. Raises ``InvalidPolicy``."""
    refused = f"Set namespace[{namespace}] backlog quota failed because the data validation failed."
    if quota.policy not in {each.value for each in QuotaPolicy}:
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
    if has_size and quota_bytes(quota) >= retention.size_mib * MIB:
        return False
    return not (has_time and quota.limit_time >= retention.time_minutes * MINUTE_S)
