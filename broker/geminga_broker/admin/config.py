"""What the REST side may do beyond what upstream allows by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """The settings of the REST side."""

    force_deletes_namespaces: Annotated[bool, Upstream("forceDeleteNamespaceAllowed")] = False
    """A namespace may be deleted together with its topics, whoever uses them."""
    force_deletes_tenants: Annotated[bool, Upstream("forceDeleteTenantAllowed")] = False
    """A tenant may be deleted together with its namespaces."""
