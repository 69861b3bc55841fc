"""Loads are averaged over reports as upstream does it; the heaviest bundles are kept."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.geminga_broker.load_manager.modelled_cluster import report, stats

from geminga_broker.load_manager.balancing.cluster_load import cost_of
from geminga_broker.load_manager.balancing.load_history import (
    BUNDLES_KEPT_MAX,
    BUNDLES_OF_BROKER_MAX,
    LONG_SAMPLES,
    SHORT_SAMPLES,
    LoadHistory,
    cost_of_average,
)
from geminga_protocol.records.cluster.brokers import (
    BundleData,
    MessageAverages,
    TimeAverageBrokerData,
)

BUNDLE = "t/n/0x00000000_0x80000000"
DATA = BundleData(
    short_term_data=MessageAverages(max_samples=10, num_samples=3, msg_rate_in=600.0), topics=2
)


def test_an_average_is_of_the_last_reports_and_older_ones_fade() -> None:
    history = LoadHistory()
    for _ in range(SHORT_SAMPLES):
        history.sample("a:1", report({BUNDLE: stats(100)}))
    history.sample("a:1", report({BUNDLE: stats(1200, topics=3)}))
    data = history.take_changes()[BUNDLE]
    assert data is not None
    assert data.short_term_data == MessageAverages(
        max_samples=SHORT_SAMPLES, num_samples=SHORT_SAMPLES, msg_rate_in=210.0
    )
    assert data.long_term_data == MessageAverages(
        max_samples=LONG_SAMPLES, num_samples=11, msg_rate_in=200.0
    )
    assert data.topics == 3


def test_a_report_counts_once_and_a_brokers_average_is_of_all_its_bundles() -> None:
    history = LoadHistory()
    once = replace(report({BUNDLE: stats(7)}), msg_rate_in=90.0, msg_throughput_out=50.0)
    for _ in range(3):
        history.sample("a:1", once)
    history.sample("b:1", report({}))
    data = history.take_changes()[BUNDLE]
    assert data is not None
    assert data.long_term_data.num_samples == 1
    assert history.take_changes() == {}
    history.keep_brokers({"a:1", "c:1"})
    assert history.brokers() == {
        "a:1": TimeAverageBrokerData(
            short_term_msg_rate_in=90,
            long_term_msg_rate_in=90,
            short_term_msg_throughput_out=50,
            long_term_msg_throughput_out=50,
        )
    }


def test_only_the_heaviest_bundles_of_a_broker_are_averaged() -> None:
    history = LoadHistory()
    many = {f"t/n/{number}": stats(number) for number in range(2 * BUNDLES_OF_BROKER_MAX)}
    history.sample("a:1", report(many))
    heaviest = {f"t/n/{number}" for number in range(BUNDLES_OF_BROKER_MAX, len(many))}
    assert history.take_changes().keys() == heaviest


def test_those_that_were_not_seen_for_longest_make_room() -> None:
    history = LoadHistory()
    history.restore({f"t/n/{number}": DATA for number in range(BUNDLES_KEPT_MAX)})
    history.sample("a:1", report({"t/n/new": stats(1)}))
    changes = history.take_changes()
    assert len(changes) == 2
    assert changes["t/n/new"] is not None
    assert [name for name, data in changes.items() if data is None] == [
        f"t/n/{BUNDLES_KEPT_MAX - 1}"
    ]


def test_what_a_bundle_cost_is_known_from_its_average() -> None:
    before = stats(600, topics=2)
    assert cost_of_average(DATA) == cost_of(before)
