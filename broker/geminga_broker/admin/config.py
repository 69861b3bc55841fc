"""What the REST side may do beyond what upstream allows by default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """The settings of the REST side; upstream's names in brackets."""

    force_deletes_namespaces: bool = False
    """A namespace may be deleted together with its topics, whoever uses them
    (forceDeleteNamespaceAllowed)."""
    force_deletes_tenants: bool = False
    """A tenant may be deleted together with its namespaces (forceDeleteTenantAllowed)."""
