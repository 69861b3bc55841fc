"""Storage follows the namespace, and is refused where no ledger could be made so."""

from __future__ import annotations

import pytest

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.retention import Retention
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels
from geminga_broker.policies.storage import (
    CURSOR_FLUSH_DELAY_S_MAX,
    check_persistence,
    check_retention,
    managed_ledger_config,
    retention,
)
from geminga_protocol.records.cluster.namespaces import (
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)
from geminga_protocol.records.cluster.topic_policies import TopicPolicies

CONFIG = ManagedLedgerConfig(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=1,
    retention_time_ms=5,
    retention_bytes=6,
    cursor_flush_delay_s=0.1,
)


def persistence(ensemble: int, write_quorum: int, ack_quorum: int) -> PersistencePolicies:
    return PersistencePolicies(ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)


def kept(time_minutes: int, size_mib: int) -> RetentionPolicies:
    return RetentionPolicies(time_minutes=time_minutes, size_mib=size_mib)


def config_with(policies: PersistencePolicies) -> ManagedLedgerConfig:
    return managed_ledger_config(CONFIG, Levels(namespace=Policies(persistence=policies)))


def test_where_nothing_is_said_the_config_is_the_broker_s() -> None:
    assert managed_ledger_config(CONFIG, Levels()) is CONFIG
    assert retention(CONFIG, Levels()) == Retention(5, 6)


def test_ledgers_are_on_as_many_bookies_as_the_namespace_says() -> None:
    config = config_with(persistence(5, 3, 2))
    assert (config.ensemble_size, config.write_quorum, config.ack_quorum) == (5, 3, 2)
    assert config.ledger_entries_max == CONFIG.ledger_entries_max


def test_quorums_that_no_ledger_can_have_are_passed_over() -> None:
    assert config_with(persistence(1, 3, 2)) is CONFIG
    odd = TopicPolicies(persistence=persistence(1, 3, 2))
    said = Levels(topic=odd, namespace=Policies(persistence=persistence(5, 3, 2)))
    assert managed_ledger_config(CONFIG, said).ensemble_size == 5


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
    assert config_with(PersistencePolicies(mark_delete_rate_max=rate)).cursor_flush_delay_s == (
        delay_s
    )


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        ((0, 0), Retention(0, 0)),
        ((-1, -1), Retention(-1, -1)),
        ((2, 3), Retention(120_000, 3 * 1024 * 1024)),
        ((-1, 3), Retention(-1, 3 * 1024 * 1024)),
    ],
)
def test_retention_comes_in_minutes_and_mebibytes(limits: tuple[int, int], held: Retention) -> None:
    assert retention(CONFIG, Levels(namespace=Policies(retention=kept(*limits)))) == held


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
    check_retention(kept(*limits))


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
        check_retention(kept(*limits))
