"""The check that every route makes before its handler runs: may this principal do that?

A route names its check in its declaration (``dependencies=[on_topic(Action.READ)]``). Each
application has a test that walks its routes with ``questions_of`` and fails for one without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from geminga_server.authorization import ANONYMOUS, Action, Authorize, Principal, Resource
from geminga_server.rest.parameters import namespace_in, path_value, topic_in


@dataclass(frozen=True, slots=True)
class Access:
    """What the checks of an application need."""

    authorize: Authorize
    # The cluster that is meant where a path names none.
    cluster: str
    # The server itself.
    server: Resource


@dataclass(frozen=True, slots=True)
class Question:
    """A dependency that refuses the request unless its principal may do ``action``."""

    action: Action
    find_resource: Callable[[Request], Resource]

    async def __call__(self, request: Request) -> None:
        """Return where it may. Raises ``NotAuthorized``, ``RestError`` for an invalid name."""
        # First: a name that is not valid is answered by its own error, with rights or without.
        resource = self.find_resource(request)
        # As the server's authentication found it; there is none without authentication.
        principal: Principal | None = request.scope.get("state", {}).get("principal")
        await access_of(request).authorize(principal or ANONYMOUS, self.action, resource)


def questions_of(route: APIRoute) -> list[Question]:
    """The checks that a route makes."""
    asked = (each.dependency for each in route.dependencies)
    return [each for each in asked if isinstance(each, Question)]


def access_of(request: Request) -> Access:
    """What the checks of the request's application need."""
    access: Access = request.app.state.access
    return access


# One object for all routes that make the same check: there are hundreds of routes, and a few
# checks.
@cache
def on_topic(action: Action) -> Any:  # noqa: ANN401 - what Depends returns has no public type
    """Check the right to the topic in the path."""
    return Depends(Question(action, lambda request: Resource("topic", str(topic_in(request)))))


@cache
def on_namespace(action: Action) -> Any:  # noqa: ANN401 - as above
    """Check the right to the namespace in the path."""
    return Depends(
        Question(action, lambda request: Resource("namespace", str(namespace_in(request))))
    )


@cache
def on_tenant(action: Action) -> Any:  # noqa: ANN401 - as above
    """Check the right to the tenant in the path."""
    return Depends(
        Question(action, lambda request: Resource("tenant", path_value(request, "tenant")))
    )


@cache
def on_cluster(action: Action) -> Any:  # noqa: ANN401 - as above
    """Check the right to the cluster in the path; to this one where the path names none."""

    def find(request: Request) -> Resource:
        is_named = "cluster" in request.path_params
        return Resource(
            "cluster", path_value(request, "cluster") if is_named else access_of(request).cluster
        )

    return Depends(Question(action, find))


@cache
def on_server(action: Action) -> Any:  # noqa: ANN401 - as above
    """Check the right to this server."""
    return Depends(Question(action, lambda request: access_of(request).server))
