"""A namespace's policies are refused where they could not work, or would contradict each other."""

from __future__ import annotations

import pytest

from geminga_broker.metadata.errors import ConflictingPolicies, InvalidPolicy
from geminga_broker.metadata.policy_rules import (
    INT_MAX,
    LONG_MAX,
    check_persistence,
    check_quota_within_retention,
    check_retention,
    check_retention_covers_quota,
    checked_quota,
    quota_bytes,
)
from geminga_protocol.records.namespaces import (
    BacklogQuota,
    PersistencePolicies,
    RetentionPolicies,
)

MIB = 1024 * 1024
HOLD = "producer_request_hold"


def persistence(ensemble: int, write_quorum: int, ack_quorum: int) -> PersistencePolicies:
    return PersistencePolicies(ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)


def retention(time_minutes: int, size_mib: int) -> RetentionPolicies:
    return RetentionPolicies(time_minutes=time_minutes, size_mib=size_mib)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 3, 2), (5, 3, 2), (5, 5, 5)])
def test_quorums_that_fit_into_each_other_are_taken(sizes: tuple[int, int, int]) -> None:
    check_persistence(persistence(*sizes))


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((0, 1, 1), "Bookkeeper-Ensemble must be <= 5 and > 0."),
        ((6, 1, 1), "Bookkeeper-Ensemble must be <= 5 and > 0."),
        ((1, 0, 1), "Bookkeeper-WriteQuorum must be <= 5 and > 0."),
        ((1, 1, -1), "Bookkeeper-AckQuorum must be <= 5 and > 0."),
        ((2, 3, 2), r"Bookkeeper Ensemble \(2\) >= WriteQuorum \(3\) >= AckQuorum \(2\)"),
        ((3, 2, 3), r"Bookkeeper Ensemble \(3\) >= WriteQuorum \(2\) >= AckQuorum \(3\)"),
    ],
)
def test_other_quorums_are_refused(sizes: tuple[int, int, int], reason: str) -> None:
    with pytest.raises(InvalidPolicy, match=reason):
        check_persistence(persistence(*sizes))


@pytest.mark.parametrize("limits", [(0, 0), (-1, -1), (-1, 5), (5, -1), (INT_MAX, LONG_MAX)])
def test_retention_with_both_limits_or_none_is_taken(limits: tuple[int, int]) -> None:
    check_retention(retention(*limits))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((-2, 5), "time limit must be >= -1"),
        ((5, -2), "size limit must be >= -1"),
        ((0, 5), "Setting a single time or size limit to 0"),
        ((-1, 0), "Setting a single time or size limit to 0"),
        ((INT_MAX + 1, 5), "too large"),
        ((5, LONG_MAX + 1), "too large"),
    ],
)
def test_other_retention_is_refused(limits: tuple[int, int], reason: str) -> None:
    with pytest.raises(InvalidPolicy, match=reason):
        check_retention(retention(*limits))


def test_a_quota_is_stored_under_both_names_of_its_limit() -> None:
    new = checked_quota("t/n", BacklogQuota(limit=5, limit_size=6, limit_time=7, policy=HOLD))
    assert new == BacklogQuota(limit=6, limit_size=6, limit_time=7, policy=HOLD)
    old = checked_quota("t/n", BacklogQuota(limit=5, policy=HOLD))
    assert (old.limit, old.limit_size) == (5, 5)
    assert quota_bytes(BacklogQuota()) == 0


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        (BacklogQuota(limit=5), r"Set namespace\[t/n\] backlog quota failed .* cannot be null"),
        (BacklogQuota(limit=5, policy="whatever"), "the attribute policy cannot be null"),
        (BacklogQuota(limit=LONG_MAX + 1, policy=HOLD), "too large"),
        (BacklogQuota(limit_time=INT_MAX + 1, policy=HOLD), "too large"),
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
    if fits:
        check_quota_within_retention(quota, kept)
        if kept is not None:
            check_retention_covers_quota(kept, quotas)
    else:
        assert kept is not None
        with pytest.raises(ConflictingPolicies, match="Backlog Quota exceeds"):
            check_quota_within_retention(quota, kept)
        with pytest.raises(ConflictingPolicies, match="Retention Quota must exceed"):
            check_retention_covers_quota(kept, quotas)


def test_a_quota_by_age_is_not_compared() -> None:
    check_retention_covers_quota(retention(1, 1), {"message_age": BacklogQuota(limit_time=600)})
