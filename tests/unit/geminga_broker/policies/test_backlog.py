"""Backlog quotas hold as upstream's do, at their limits too, and are refused where they cannot."""

from __future__ import annotations

from typing import get_args

import pytest

from geminga_broker.policies.backlog import (
    UNLIMITED,
    BacklogConfig,
    BacklogQuotas,
    PolicyName,
    Quota,
    QuotaPolicy,
    backlog_quotas,
    check_quota_within_retention,
    check_retention_covers_quota,
    checked_quota,
    is_age_exceeded,
    is_size_exceeded,
    quota_bytes,
)
from geminga_broker.policies.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels
from geminga_protocol.records.cluster.namespaces import BacklogQuota, Policies, RetentionPolicies

MIB = 1024 * 1024

HOLD, REFUSE, EVICT = (
    QuotaPolicy.HOLD_PRODUCERS,
    QuotaPolicy.REFUSE_PRODUCERS,
    QuotaPolicy.EVICT_BACKLOG,
)


def retention(time_minutes: int, size_mib: int) -> RetentionPolicies:
    return RetentionPolicies(time_minutes=time_minutes, size_mib=size_mib)


def quotas_of(namespace: dict[str, BacklogQuota], config: BacklogConfig) -> BacklogQuotas:
    return backlog_quotas(config, Levels(namespace=Policies(backlog_quota_map=namespace)))


def test_the_policies_are_those_a_broker_may_be_told() -> None:
    assert tuple(each.value for each in QuotaPolicy) == get_args(PolicyName)
    assert [each.stops_producers for each in (HOLD, REFUSE, EVICT)] == [True, True, False]


@pytest.mark.parametrize(
    ("limit", "quota"), [(-2, None), (-1, None), (0, Quota(0, HOLD)), (1, Quota(1, HOLD))]
)
def test_a_size_below_0_is_no_limit(limit: int, quota: Quota | None) -> None:
    config = BacklogConfig(backlog_quota_bytes=limit, backlog_quota_policy="producer_request_hold")
    assert quotas_of({}, config).size == quota


@pytest.mark.parametrize(("limit", "quota"), [(-1, None), (0, None), (1, Quota(1, EVICT))])
def test_an_age_of_0_and_below_is_no_limit(limit: int, quota: Quota | None) -> None:
    config = BacklogConfig(
        backlog_quota_age_s=limit, backlog_quota_policy="consumer_backlog_eviction"
    )
    assert quotas_of({}, config).age == quota


@pytest.mark.parametrize("policy", [None, "", "of another version"])
def test_an_unknown_policy_holds_producers(policy: str | None) -> None:
    stored = {"destination_storage": BacklogQuota(limit=1, policy=policy)}
    assert quotas_of(stored, BacklogConfig()).size == Quota(1, HOLD)


@pytest.mark.parametrize(
    ("limit", "backlog_bytes", "is_exceeded"),
    [(0, 0, True), (10, 9, False), (10, 10, True), (10, 11, True)],
)
def test_a_size_is_exceeded_when_it_is_reached(
    limit: int,
    backlog_bytes: int,
    is_exceeded: bool,  # noqa: FBT001 (a column of the table)
) -> None:
    assert is_size_exceeded(Quota(limit, HOLD), backlog_bytes) is is_exceeded


@pytest.mark.parametrize(
    ("limit", "oldest_s", "is_exceeded"),
    [(10, None, False), (10, 9.9, False), (10, 10.0, False), (10, 10.001, True)],
)
def test_an_age_is_exceeded_when_it_is_passed(
    limit: int,
    oldest_s: float | None,
    is_exceeded: bool,  # noqa: FBT001 (a column of the table)
) -> None:
    assert is_age_exceeded(Quota(limit, HOLD), oldest_s) is is_exceeded


def test_without_a_quota_nothing_is_exceeded() -> None:
    assert not is_size_exceeded(None, 2**62)
    assert not is_age_exceeded(None, 1e9)
    assert UNLIMITED.is_unlimited
    assert not BacklogQuotas(age=Quota(1, HOLD)).is_unlimited
    assert not BacklogQuotas(size=Quota(1, HOLD)).is_unlimited


def test_a_namespaces_quota_comes_before_the_brokers_type_by_type() -> None:
    config = BacklogConfig(
        backlog_quota_bytes=1, backlog_quota_age_s=2, backlog_quota_policy="producer_exception"
    )
    default = BacklogQuotas(size=Quota(1, REFUSE), age=Quota(2, REFUSE))
    by_size = BacklogQuota(limit=30, limit_size=30, limit_time=4, policy=EVICT.value)
    by_age = BacklogQuota(limit=0, limit_size=0, limit_time=5, policy=REFUSE.value)
    assert quotas_of({}, config) == default
    assert quotas_of({"destination_storage": by_size}, config) == BacklogQuotas(
        Quota(30, EVICT), default.age
    )
    assert quotas_of({"message_age": by_age}, config) == BacklogQuotas(
        default.size, Quota(5, REFUSE)
    )
    unlimited = BacklogQuota(limit=-1, limit_size=-1, limit_time=-1, policy=HOLD.value)
    both = {"destination_storage": unlimited, "message_age": unlimited}
    assert quotas_of(both, config) == UNLIMITED
    assert quotas_of({}, BacklogConfig()) == UNLIMITED


def test_a_record_of_an_old_version_counts_too() -> None:
    old = BacklogQuota(limit=30, policy=HOLD.value)
    assert quotas_of({"destination_storage": old}, BacklogConfig()).size == Quota(30, HOLD)


def test_an_eviction_leaves_nine_tenths() -> None:
    assert Quota(1000, EVICT).target == 900


def test_a_quota_is_stored_under_both_names_of_its_limit() -> None:
    new = checked_quota("t/n", BacklogQuota(limit=5, limit_size=6, limit_time=7, policy=HOLD.value))
    assert new == BacklogQuota(limit=6, limit_size=6, limit_time=7, policy=HOLD.value)
    old = checked_quota("t/n", BacklogQuota(limit=5, policy=HOLD.value))
    assert (old.limit, old.limit_size) == (5, 5)
    assert quota_bytes(BacklogQuota()) == 0


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (BacklogQuota(limit=5), r"Set namespace\[t/n\] backlog quota failed .* cannot be null"),
        (BacklogQuota(limit=5, policy="whatever"), "the attribute policy cannot be null"),
        (BacklogQuota(limit=LONG_MAX + 1, policy=HOLD.value), "too large"),
        (BacklogQuota(limit_time=INT_MAX + 1, policy=HOLD.value), "too large"),
    ],
)
def test_a_quota_without_a_known_policy_is_refused(quota: BacklogQuota, reason: str) -> None:
    with pytest.raises(InvalidPolicy, match=reason):
        checked_quota("t/n", quota)


@pytest.mark.parametrize(
    ("quota", "kept", "fits"),
    [
        (None, retention(1, 1), True),
        (BacklogQuota(limit=MIB), None, True),
        (BacklogQuota(limit=MIB), retention(0, 0), True),
        (BacklogQuota(limit=MIB), retention(-1, -1), True),
        (BacklogQuota(limit=MIB - 1), retention(-1, 1), True),
        (BacklogQuota(limit=MIB), retention(-1, 1), False),
        (BacklogQuota(limit=-1), retention(-1, 1), True),
        (BacklogQuota(limit_time=59), retention(1, -1), True),
        (BacklogQuota(limit_time=60), retention(1, -1), False),
        (BacklogQuota(limit=MIB - 1, limit_time=60), retention(1, 1), False),
    ],
)
def test_what_may_be_unacknowledged_is_less_than_what_is_kept(
    quota: BacklogQuota | None,
    kept: RetentionPolicies | None,
    fits: bool,  # noqa: FBT001 (a column of the table)
) -> None:
    quotas = {} if quota is None else {"destination_storage": quota}
    present = Policies(backlog_quota_map=quotas, retention=kept)
    if fits:
        if quota is not None:
            check_quota_within_retention(present, quota, "destination_storage")
        if kept is not None:
            check_retention_covers_quota(present, kept, "")
    else:
        assert quota is not None
        assert kept is not None
        with pytest.raises(ConflictingPolicies, match="Backlog Quota exceeds"):
            check_quota_within_retention(present, quota, "destination_storage")
        with pytest.raises(ConflictingPolicies, match="Retention Quota must exceed"):
            check_retention_covers_quota(present, kept, "")


def test_a_quota_by_age_is_not_compared() -> None:
    quota, kept = BacklogQuota(limit_time=600), retention(1, 1)
    present = Policies(backlog_quota_map={"message_age": quota}, retention=kept)
    check_retention_covers_quota(present, kept, "")
    check_quota_within_retention(present, quota, "message_age")
