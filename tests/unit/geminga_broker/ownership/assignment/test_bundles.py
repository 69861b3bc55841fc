"""Bundles cut the whole ring without gap or overlap, and are named as Pulsar names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.ownership.assignment.bundles import (
    HASH_MAX,
    BundleRing,
    check_boundaries,
    full_ring,
    parse_boundary,
)
from geminga_broker.ownership.errors import InvalidBundles
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData

NAMESPACE = NamespaceName("public", "default")

boundaries = st.sets(st.integers(1, HASH_MAX - 1), max_size=20).map(
    lambda inner: [0, *sorted(inner), HASH_MAX]
)


def ring_of(count: int) -> BundleRing:
    record = BundlesData.equal(count)
    return BundleRing(NAMESPACE, [parse_boundary(text) for text in record.boundaries])


def test_a_bundle_is_named_by_its_ends() -> None:
    names = [bundle.name for bundle in ring_of(4).bundles]
    assert names == [
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    ]


def test_a_bundle_stands_where_pulsar_looks_for_it() -> None:
    bundle = ring_of(4).bundles[1]
    assert bundle.path == "/namespace/public/default/0x40000000_0x80000000"
    assert str(bundle) == "public/default/0x40000000_0x80000000"


def test_a_topic_falls_into_the_bundle_a_real_broker_named() -> None:
    # tests/golden/admin/answers.jsonl: GET /lookup/v2/topic/persistent/public/default/t1/bundle
    topic = TopicName.parse("persistent://public/default/t1")
    assert ring_of(4).bundle_of(topic.hash).name == "0xc0000000_0xffffffff"


@given(boundaries, st.integers(0, HASH_MAX))
def test_every_hash_falls_into_the_one_bundle_that_includes_it(
    cut: list[int], topic_hash: int
) -> None:
    ring = BundleRing(NAMESPACE, cut)
    including = [
        bundle
        for bundle in ring.bundles
        if bundle.lower <= topic_hash < bundle.upper or topic_hash == bundle.upper == HASH_MAX
    ]
    assert [ring.bundle_of(topic_hash)] == including


def test_a_bundle_is_found_by_its_name() -> None:
    ring = ring_of(4)
    assert ring.named("0x40000000_0x80000000") is ring.bundles[1]
    assert ring.named("0x40000000_0xffffffff") is None


def test_a_ring_that_is_not_cut_has_one_bundle() -> None:
    assert [bundle.name for bundle in full_ring(NAMESPACE).bundles] == ["0x00000000_0xffffffff"]


@pytest.mark.parametrize(
    "cut", [[], [0], [0, 0x80000000], [1, HASH_MAX], [0, 5, 5, HASH_MAX], [0, 9, 5, HASH_MAX]]
)
def test_boundaries_that_do_not_cut_the_whole_ring_are_refused(cut: list[int]) -> None:
    with pytest.raises(InvalidBundles):
        check_boundaries(cut)


def test_the_refusal_says_which_part_of_the_ring_is_covered() -> None:
    with pytest.raises(InvalidBundles, match="first:0x00000000, last:0x80000000"):
        check_boundaries([0, 0x80000000])


@pytest.mark.parametrize("text", ["", "0x", "zebra", "0x100000000", "-0x1"])
def test_a_text_that_is_no_boundary_is_refused(text: str) -> None:
    with pytest.raises(InvalidBundles):
        parse_boundary(text)
