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
from typing import Literal, Protocol

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

    # These words stand in logs and refusals.
    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "lookup"
    READ = "read"
    ADMINISTER = "administer"


ResourceKind = Literal["topic", "namespace", "tenant", "cluster", "broker"]


@dataclass(frozen=True, slots=True)
class Resource:
    """What a right is about: a topic (by its full name), a namespace (``tenant/ns``), a tenant, a
    cluster or a broker (by its id)."""

    kind: ResourceKind
    name: str

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
