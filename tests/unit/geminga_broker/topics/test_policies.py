"""A topic follows its namespace's policies, and the broker's settings where these say nothing."""

from __future__ import annotations

import pytest

from geminga_broker.log.options import LogOptions
from geminga_broker.log.retention import Retention
from geminga_broker.topics.backlog_quota import UNLIMITED, BacklogQuotas, Quota, QuotaPolicy
from geminga_broker.topics.policies import CURSOR_FLUSH_DELAY_S_MAX, TopicPolicies, topic_policies
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_protocol.records.namespaces import (
    BacklogQuota,
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)

TOPIC = TopicName.parse("persistent://t/n/topic")
OPTIONS = LogOptions(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=1,
    retention_time_ms=5,
    retention_bytes=6,
    cursor_flush_delay_s=0.1,
)
QUOTAS = BacklogQuotas(size=Quota(7, QuotaPolicy.HOLD_PRODUCERS))
DEFAULT = TopicPolicies.default(OPTIONS, QUOTAS)


def test_without_policies_the_settings_hold() -> None:
    assert topic_policies(TOPIC, Policies(), DEFAULT) == DEFAULT
    assert DEFAULT.retention == Retention(5, 6)


def test_ledgers_are_on_as_many_bookies_as_the_namespace_says() -> None:
    persistence = PersistencePolicies(ensemble=5, write_quorum=3, ack_quorum=2)
    log = topic_policies(TOPIC, Policies(persistence=persistence), DEFAULT).log
    assert (log.ensemble_size, log.write_quorum, log.ack_quorum) == (5, 3, 2)
    assert log.ledger_entries_max == OPTIONS.ledger_entries_max


def test_quorums_that_no_ledger_can_have_are_passed_over() -> None:
    persistence = PersistencePolicies(ensemble=1, write_quorum=3, ack_quorum=2)
    assert topic_policies(TOPIC, Policies(persistence=persistence), DEFAULT).log == OPTIONS


@pytest.mark.parametrize(
    ("rate", "delay_s"),
    [
        (0.0, 0.1),
        (-1.0, 0.1),
        (float("nan"), 0.1),
        (1000.0, 0.1),
        (2.0, 0.5),
        (1e-300, CURSOR_FLUSH_DELAY_S_MAX),
    ],
)
def test_cursors_are_stored_no_more_often_than_the_namespace_says(
    rate: float, delay_s: float
) -> None:
    persistence = PersistencePolicies(mark_delete_rate_max=rate)
    policies = topic_policies(TOPIC, Policies(persistence=persistence), DEFAULT)
    assert policies.log.cursor_flush_delay_s == delay_s


@pytest.mark.parametrize(
    ("limits", "retention"),
    [
        ((0, 0), Retention(0, 0)),
        ((-1, -1), Retention(-1, -1)),
        ((2, 3), Retention(120_000, 3 * 1024 * 1024)),
        ((-1, 3), Retention(-1, 3 * 1024 * 1024)),
    ],
)
def test_retention_comes_in_minutes_and_mebibytes(
    limits: tuple[int, int], retention: Retention
) -> None:
    policies = Policies(retention=RetentionPolicies(time_minutes=limits[0], size_mib=limits[1]))
    assert topic_policies(TOPIC, policies, DEFAULT).retention == retention


def test_the_brokers_own_topics_have_no_quota() -> None:
    quota = BacklogQuota(limit=1, policy=QuotaPolicy.REFUSE_PRODUCERS.value)
    policies = Policies(backlog_quota_map={"destination_storage": quota})
    events = TopicName.parse("persistent://t/n/__change_events")
    assert topic_policies(TOPIC, policies, DEFAULT).quotas.size == Quota(
        1, QuotaPolicy.REFUSE_PRODUCERS
    )
    assert topic_policies(events, policies, DEFAULT).quotas == UNLIMITED
