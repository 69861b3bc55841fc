"""The settings of the REST side, upstream's with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """What the REST side permits."""

    force_deletes_namespaces: Annotated[bool, Upstream("forceDeleteNamespaceAllowed")] = False
    """A namespace may be deleted together with its topics, even while they are used."""
    force_deletes_tenants: Annotated[bool, Upstream("forceDeleteTenantAllowed")] = False
    """A tenant may be deleted together with its namespaces."""
