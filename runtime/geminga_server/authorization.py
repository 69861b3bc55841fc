"""Who may do what: every handler calls ``authorize`` before it acts.

``await authorize(principal, action, resource)`` returns or raises ``NotAuthorized``. ``AllowAll``
serves a cluster without authentication; an authorizer that checks roles takes its place without a
change in any handler. It is awaited because permissions are records in ZooKeeper: a handler calls
it before it reads its own state, or reads that again afterwards. Single messages are not checked:
the right was checked when their producer or consumer was opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    """An authenticated client, or an anonymous one."""

    # The name that permissions are granted to; empty for an anonymous client.
    role: str
    is_anonymous: bool = False
    # The role of the client behind a proxy, whose role is ``role``; empty without a proxy.
    original: str = ""


ANONYMOUS = Principal("", is_anonymous=True)


class Action(StrEnum):
    """What a client wants to do. ``ADMINISTER`` is anything that changes records of a resource."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "lookup"
    READ = "read"
    ADMINISTER = "administer"


class ResourceKind(StrEnum):
    """The kinds of things that rights are about."""

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


Authorize = Callable[[Principal, Action, Resource], Awaitable[None]]
"""The function that handlers call: ``Authorizer.authorize``."""


class Authorizer(Protocol):
    """Decides about the rights of principals."""

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Return where ``principal`` may; raise ``NotAuthorized`` where not."""
        ...


class AllowAll:
    """Every principal may do everything."""

    async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
        """Return."""


ALLOW_ALL = AllowAll()
