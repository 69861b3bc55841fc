"""A tenant: its administrators and its clusters, in the node above its namespaces.

Facts: ``TenantInfoImpl`` of Apache Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.records.encodings.json_records import JsonRecord

# The tenant is the node /admin/policies/TENANT; each of its children is a namespace with its
# ``Policies``. So a tenant with children cannot be deleted: ZooKeeper refuses it.
POLICIES_PATH = "/admin/policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantInfo(JsonRecord):
    """The roles that administer a tenant, and the clusters that its namespaces may use."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()


def tenant_path(tenant: str) -> str:
    """The node of a tenant; its children are its namespaces."""
    return f"{POLICIES_PATH}/{tenant}"
