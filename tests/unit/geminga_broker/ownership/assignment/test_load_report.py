"""A load report is written again when a figure moved by a tenth, not for noise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.ownership.assignment.load_report import has_changed
from geminga_protocol.records.cluster.brokers import LocalBrokerData, ResourceUsage

BUSY = LocalBrokerData(
    cpu=ResourceUsage(usage=100.0, limit=200.0),
    msg_rate_in=1000.0,
    msg_throughput_in=1_000_000.0,
    num_topics=100,
    bundles=("public/default/0x00000000_0xffffffff",),
)


def test_an_idle_broker_has_nothing_new_to_say() -> None:
    assert not has_changed(LocalBrokerData(), LocalBrokerData(last_update=5))


def test_one_topic_more_is_noise() -> None:
    assert not has_changed(LocalBrokerData(), LocalBrokerData(num_topics=1))


@pytest.mark.parametrize("rate", [905.0, 1000.0, 1095.0])
def test_less_than_a_tenth_is_not_worth_a_write(rate: float) -> None:
    assert not has_changed(BUSY, replace(BUSY, msg_rate_in=rate))


@pytest.mark.parametrize("rate", [0.0, 899.0, 1200.0])
def test_a_tenth_is_worth_a_write(rate: float) -> None:
    assert has_changed(BUSY, replace(BUSY, msg_rate_in=rate))


def test_other_bundles_are_worth_a_write() -> None:
    assert has_changed(BUSY, replace(BUSY, bundles=()))


def test_a_tenth_of_a_resource_is_worth_a_write() -> None:
    assert has_changed(BUSY, replace(BUSY, cpu=ResourceUsage(usage=121.0, limit=200.0)))
    assert not has_changed(BUSY, replace(BUSY, cpu=ResourceUsage(usage=110.0, limit=200.0)))


def test_a_resource_without_a_limit_counts_as_unused() -> None:
    assert not has_changed(LocalBrokerData(), LocalBrokerData(cpu=ResourceUsage(usage=50.0)))
