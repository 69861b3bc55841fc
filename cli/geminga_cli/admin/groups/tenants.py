"""``geminga admin tenants``."""

from __future__ import annotations

from typing import Any

from geminga_cli.admin.operation import Given, Operation, gets, option, place, sends, switch
from geminga_cli.admin.service import AdminService
from geminga_cli.admin.values import words

TENANT = place("tenant", "the tenant's name")
ROLES = option(
    "--admin-roles",
    "-r",
    read=words,
    metavar="A,B",
    help="the principals that may administer the tenant",
)
CLUSTERS = option(
    "--allowed-clusters",
    "-c",
    read=words,
    metavar="A,B",
    help="the clusters that its namespaces may be in (default of create: all)",
)


def create_tenant(service: AdminService, given: Given) -> None:
    """Create a tenant, in all clusters unless some are given."""
    # REST refuses a tenant without clusters.
    clusters = given.allowed_clusters or service.ask("GET", "clusters")
    body = {"adminRoles": given.admin_roles or [], "allowedClusters": clusters}
    service.ask("PUT", f"tenants/{given.tenant}", content=body)


def update_tenant(service: AdminService, given: Given) -> None:
    """Change what is given. REST replaces the whole record, so the rest is read first."""
    current: dict[str, Any] = service.ask("GET", f"tenants/{given.tenant}")
    body = {
        "adminRoles": current["adminRoles"] if given.admin_roles is None else given.admin_roles,
        # Never empty, unlike the roles: without any, only superusers administer the tenant.
        "allowedClusters": given.allowed_clusters or current["allowedClusters"],
    }
    service.ask("POST", f"tenants/{given.tenant}", content=body)


OPERATIONS = (
    Operation("list", "list all tenants", (), gets("tenants")),
    Operation(
        "get",
        "show who administers a tenant, and its clusters",
        (TENANT,),
        gets("tenants/{tenant}"),
    ),
    Operation("create", "create a tenant", (TENANT, ROLES, CLUSTERS), create_tenant),
    Operation("update", "change a tenant", (TENANT, ROLES, CLUSTERS), update_tenant),
    # Without --force a tenant that has namespaces is refused.
    Operation(
        "delete",
        "delete a tenant",
        (TENANT, switch("--force", "-f", help="with all its namespaces")),
        sends("DELETE", "tenants/{tenant}", query={"force": "force"}),
    ),
)
