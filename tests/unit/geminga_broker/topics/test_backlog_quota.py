"""Backlog quotas hold as upstream's do, at their limits too, and an eviction leaves nine tenths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.log.chain import LedgerChain, LedgerSpan
from geminga_broker.log.positions import Position
from geminga_broker.metadata.policy_rules import QUOTA_POLICIES
from geminga_broker.topics.backlog_quota import (
    UNLIMITED,
    BacklogQuotas,
    Quota,
    QuotaPolicy,
    age_quota,
    is_age_exceeded,
    is_size_exceeded,
    position_leaving,
    quotas_of,
    size_quota,
)
from geminga_protocol.records.namespaces import BacklogQuota

HOLD, REFUSE, EVICT = (
    QuotaPolicy.HOLD_PRODUCERS,
    QuotaPolicy.REFUSE_PRODUCERS,
    QuotaPolicy.EVICT_BACKLOG,
)


def test_the_policies_are_those_a_namespace_may_have() -> None:
    assert tuple(each.value for each in QuotaPolicy) == QUOTA_POLICIES
    assert [each.stops_producers for each in (HOLD, REFUSE, EVICT)] == [True, True, False]


@pytest.mark.parametrize(
    ("limit", "quota"), [(-2, None), (-1, None), (0, Quota(0, HOLD)), (1, Quota(1, HOLD))]
)
def test_a_size_below_nothing_is_no_limit(limit: int, quota: Quota | None) -> None:
    assert size_quota(limit, HOLD.value) == quota


@pytest.mark.parametrize(("limit", "quota"), [(-1, None), (0, None), (1, Quota(1, EVICT))])
def test_an_age_of_nothing_is_no_limit(limit: int, quota: Quota | None) -> None:
    assert age_quota(limit, EVICT.value) == quota


@pytest.mark.parametrize("policy", [None, "", "of another version"])
def test_a_policy_that_nobody_knows_loses_nothing(policy: str | None) -> None:
    assert size_quota(1, policy) == Quota(1, HOLD)


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
    default = BacklogQuotas(size=Quota(1, HOLD), age=Quota(2, HOLD))
    by_size = BacklogQuota(limit=30, limit_size=30, limit_time=4, policy=EVICT.value)
    by_age = BacklogQuota(limit=0, limit_size=0, limit_time=5, policy=REFUSE.value)
    assert quotas_of({}, default) == default
    assert quotas_of({"destination_storage": by_size}, default) == BacklogQuotas(
        Quota(30, EVICT), default.age
    )
    assert quotas_of({"message_age": by_age}, default) == BacklogQuotas(
        default.size, Quota(5, REFUSE)
    )
    unlimited = BacklogQuota(limit=-1, limit_size=-1, limit_time=-1, policy=HOLD.value)
    both = {"destination_storage": unlimited, "message_age": unlimited}
    assert quotas_of(both, default) == UNLIMITED


def test_a_record_of_an_old_version_counts_too() -> None:
    old = BacklogQuota(limit=30, policy=HOLD.value)
    assert quotas_of({"destination_storage": old}, UNLIMITED).size == Quota(30, HOLD)


def test_an_eviction_leaves_nine_tenths() -> None:
    assert Quota(1000, EVICT).target == 900


LEDGERS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=6)


@given(ledgers=LEDGERS, bytes_max=st.integers(0, 2000))
def test_as_little_is_passed_as_leaves_no_more_than_that(
    ledgers: list[tuple[int, int]], bytes_max: int
) -> None:
    spans = [
        LedgerSpan(ledger_id, entries, entries * entry_bytes)
        for ledger_id, (entries, entry_bytes) in enumerate(ledgers)
    ]
    chain = LedgerChain(spans)
    position = position_leaving(chain, bytes_max)
    assert chain.bytes_between(position, chain.last_confirmed) <= bytes_max
    if position > chain.before_first:
        before = chain.previous_of(position)
        assert chain.bytes_between(before, chain.last_confirmed) > bytes_max


def test_an_empty_log_has_nothing_to_pass() -> None:
    assert position_leaving(LedgerChain(), 0) == LedgerChain().before_first
    assert position_leaving(LedgerChain([LedgerSpan(3)]), 0) == Position(3, -1)
