"""Proves which broker is asked for a bundle that no broker owns, and that bundles are spread."""

from __future__ import annotations

from collections import Counter

import pytest

from geminga_broker.ownership.addresses.address import LookupReason
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing, full_ring
from geminga_broker.ownership.assignment.placement import BrokersView, Loads, evenly_spread, place
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_protocol.records.cluster.brokers import LocalBrokerData

SHOP = NamespaceName("acme", "shop")
HERE, THERE, LEADER = "here:8080", "there:8080", "leader:8080"
(BUNDLE,) = full_ring(SHOP).bundles


def on_there(bundle: Bundle, loads: Loads) -> str:
    """Every bundle is to go to ``THERE``."""
    del bundle, loads
    return THERE


def view(*living: str, leader: str | None) -> BrokersView:
    return BrokersView({broker_id: LocalBrokerData() for broker_id in living}, leader)


def test_a_broker_that_does_not_lead_names_the_leader() -> None:
    known = view(HERE, THERE, LEADER, leader=LEADER)
    asked = place(BUNDLE, HERE, known, on_there, authoritative=False)
    assert asked == (LEADER, LookupReason.DECIDES)


def test_the_leader_names_the_broker_it_chooses() -> None:
    known = view(LEADER, THERE, leader=LEADER)
    asked = place(BUNDLE, LEADER, known, on_there, authoritative=False)
    assert asked == (THERE, LookupReason.CHOSEN)


@pytest.mark.parametrize("leader", [None, LEADER], ids=["none", "one that is gone"])
def test_without_a_living_leader_the_asked_broker_chooses(leader: str | None) -> None:
    known = view(HERE, THERE, leader=leader)
    asked = place(BUNDLE, HERE, known, on_there, authoritative=False)
    assert asked == (THERE, LookupReason.CHOSEN)


def test_with_authority_the_asked_broker_acquires() -> None:
    known = view(HERE, THERE, LEADER, leader=LEADER)
    asked = place(BUNDLE, HERE, known, on_there, authoritative=True)
    assert asked == (HERE, LookupReason.CHOSEN)


def test_a_choice_that_does_not_live_falls_to_the_asked_broker() -> None:
    known = view(HERE, leader=HERE)
    assert place(BUNDLE, HERE, known, on_there, authoritative=False) == (HERE, LookupReason.CHOSEN)


@pytest.mark.parametrize("authoritative", [False, True])
def test_a_brokers_own_namespace_is_its_own(*, authoritative: bool) -> None:
    (own,) = full_ring(NamespaceName("pulsar", THERE)).bundles
    known = view(HERE, THERE, leader=HERE)
    asked = place(own, HERE, known, evenly_spread, authoritative=authoritative)
    assert asked == (THERE, LookupReason.CHOSEN)


def test_bundles_are_spread_and_stay_where_they_are_when_a_broker_comes() -> None:
    size = 0xFFFFFFFF // 4096
    bundles = BundleRing(SHOP, [*(size * n for n in range(4096)), 0xFFFFFFFF]).bundles
    brokers = {f"10.0.0.{number}:8080": LocalBrokerData() for number in range(8)}
    before = {bundle: evenly_spread(bundle, brokers) for bundle in bundles}
    assert max(Counter(before.values()).values()) < 1.25 * 4096 / 8
    brokers["10.0.0.9:8080"] = LocalBrokerData()
    after = {bundle: evenly_spread(bundle, brokers) for bundle in bundles}
    moved = [bundle for bundle in bundles if before[bundle] != after[bundle]]
    assert {after[bundle] for bundle in moved} == {"10.0.0.9:8080"}
    assert len(moved) < 1.25 * 4096 / 9
