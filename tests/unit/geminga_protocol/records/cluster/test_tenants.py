"""A tenant's record holds its roles and clusters."""

from __future__ import annotations

from geminga_protocol.records.cluster.tenants import TenantInfo, tenant_path


def test_a_tenant_is_the_recorded_one() -> None:
    tenant = TenantInfo(admin_roles=("admin",), allowed_clusters=("golden",))
    assert tenant.encode() == b'{"adminRoles":["admin"],"allowedClusters":["golden"]}'


def test_a_tenant_stands_under_its_name() -> None:
    assert tenant_path("acme") == "/admin/policies/acme"
