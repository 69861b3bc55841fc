"""Who may do what: every handler calls ``authorize`` before it acts.

``await authorize(principal, action, resource)`` returns or raises ``NotAuthorized``. ``allow_all``
serves a cluster without authentication; a function that checks roles takes its place without a
change in any handler. It is awaited because permissions are records in ZooKeeper: a handler calls
it before it reads its own state, or reads that again afterwards. Single messages are not checked:
the right was checked when their producer or consumer was opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from geminga_server.errors import NotAuthorized

__all__ = [
    "ANONYMOUS",
    "Action",
    "Authorize",
    "NotAuthorized",
    "Principal",
    "Resource",
    "ResourceKind",
    "allow_all",
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
"""The function that handlers call. It returns where the principal may do that, and raises
``NotAuthorized`` where not."""


async def allow_all(_principal: Principal, _action: Action, _resource: Resource) -> None:
    """Every principal may do everything."""
