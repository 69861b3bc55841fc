"""Who may do what: the one question every handler asks before it acts.

``await authorize(principal, action, resource)`` returns or raises ``NotAuthorized``. ``AllowAll``
is the answer of a cluster without authentication; one that checks roles takes its place without a
change in any handler. It is awaited because permissions are records in ZooKeeper: a handler asks
before it looks at its own state, or looks at it again afterwards. Messages ride on the right that
was found when their producer or consumer was opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from geminga_server.errors import NotAuthorized

__all__ = [
    "ALLOW_ALL",
    "ANONYMOUS",
    "Action",
    "AllowAll",
    "Authorize",
    "Authorizer",
    "NotAuthorized",
    "Principal",
    "Resource",
    "ResourceKind",
]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``original`` is the role a proxy asks for; empty where nobody stands between."""

    role: str
    is_anonymous: bool = False
    original: str = ""


ANONYMOUS = Principal("", is_anonymous=True)


class Action(StrEnum):
    """What can be asked for. ``ADMINISTER`` is anything that changes records of the resource."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "lookup"
    READ = "read"
    ADMINISTER = "administer"


class ResourceKind(StrEnum):
    """What can be asked about."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    TENANT = "tenant"
    CLUSTER = "cluster"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Resource:
    """One topic (by its full name), namespace (``tenant/ns``), tenant, cluster or broker."""

    kind: ResourceKind
    name: str

    @classmethod
    def topic(cls, name: str) -> Resource:
        """The topic of that full name."""
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def namespace(cls, name: str) -> Resource:
        """The namespace ``tenant/ns``."""
        return cls(ResourceKind.NAMESPACE, name)

    @classmethod
    def tenant(cls, name: str) -> Resource:
        """The tenant."""
        return cls(ResourceKind.TENANT, name)

    @classmethod
    def cluster(cls, name: str) -> Resource:
        """The cluster."""
        return cls(ResourceKind.CLUSTER, name)

    @classmethod
    def broker(cls, name: str) -> Resource:
        """The broker of that id."""
        return cls(ResourceKind.BROKER, name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Authorize(Protocol):
    """The question."""

    async def __call__(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Return where ``principal`` may; raise ``NotAuthorized`` where not."""
        ...


class Authorizer(Protocol):
    """Who answers it."""

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Return where ``principal`` may; raise ``NotAuthorized`` where not."""
        ...


class AllowAll:
    """Everybody may do everything."""

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Return."""


ALLOW_ALL = AllowAll()
