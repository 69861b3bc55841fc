"""A new namespace gets the policies that upstream writes, and bundles of equal size."""

from __future__ import annotations

import json

import pytest
from tests.project_files import GOLDEN

from geminga_protocol.records.cluster.namespaces import (
    BacklogQuota,
    BundlesData,
    LocalPolicies,
    PersistencePolicies,
    Policies,
    RetentionPolicies,
    local_policies_path,
    policies_path,
)

RECORDED = GOLDEN / "records"


def lines_of(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


def recorded(path: str) -> bytes:
    (text,) = {each["text"] for each in lines_of("zookeeper.jsonl") if each["path"] == path}
    return text.encode()


def upstream(kind: str) -> bytes:
    (text,) = (each["text"] for each in lines_of("jackson.jsonl") if each["kind"] == kind)
    return text.encode()


def test_a_new_namespace_has_the_recorded_policies() -> None:
    policies = Policies(replication_clusters=("golden",), bundles=BundlesData.equal(16))
    assert policies.encode() == recorded("/admin/policies/public/default")


def test_policies_without_anything_are_upstreams_defaults() -> None:
    assert Policies().encode() == upstream("policies-new")


def test_policies_that_were_set_are_the_recorded_ones() -> None:
    policies = Policies(
        replication_clusters=("golden",),
        bundles=BundlesData.equal(4),
        persistence=PersistencePolicies(ensemble=3, write_quorum=2, ack_quorum=2),
        deduplication_enabled=True,
        message_ttl_s=3600,
        retention=RetentionPolicies(time_minutes=60, size_mib=100),
    )
    assert policies.encode() == recorded("/admin/policies/acme/shop")


def test_every_field_stands_for_a_member_that_upstream_writes() -> None:
    policies = Policies.decode(upstream("policies"))
    assert policies.other == {}
    assert policies.backlog_quota_map["destination_storage"] == BacklogQuota(
        limit=1048576, limit_size=1048576, limit_time=60, policy="producer_exception"
    )
    assert policies.topic_dispatch_rate["east"].period_s == 2
    assert policies.subscriptions_per_topic_max == 6


def test_local_policies_begin_with_the_bundles_alone() -> None:
    local = LocalPolicies(bundles=BundlesData.equal(4))
    assert local.encode() == recorded("/admin/local-policies/acme/shop")


@pytest.mark.parametrize(
    ("count", "boundaries"),
    [
        (1, ("0x00000000", "0xffffffff")),
        (2, ("0x00000000", "0x80000000", "0xffffffff")),
        (3, ("0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff")),
    ],
)
def test_bundles_are_of_equal_size(count: int, boundaries: tuple[str, ...]) -> None:
    assert BundlesData.equal(count) == BundlesData(boundaries=boundaries, num_bundles=count)


def test_policies_stand_below_the_tenant() -> None:
    assert policies_path("acme/shop") == "/admin/policies/acme/shop"
    assert local_policies_path("acme/shop") == "/admin/local-policies/acme/shop"
