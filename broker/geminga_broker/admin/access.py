"""The question every route asks before its handler runs: may this principal do that?

A route names its question in its declaration (``dependencies=[on_topic(Action.READ)]``); a test
walks all routes and fails for one that asks none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import Depends, Request

from geminga_broker.admin.facade import Services
from geminga_broker.admin.parameters import namespace_in, path_value, topic_in
from geminga_server.authorization import ANONYMOUS, Action, Principal, Resource

FindResource = Callable[[Request, Services], Resource]


class Question:
    """A dependency that refuses the request unless its principal may do ``action``."""

    def __init__(self, action: Action, find_resource: FindResource) -> None:
        self.action = action
        self._find_resource = find_resource

    async def __call__(self, request: Request) -> None:
        """Return where it may. Raises ``NotAuthorized``, ``RestError`` for an impossible name."""
        services: Services = request.app.state.services
        resource = self._find_resource(request, services)
        await services.authorize(principal_of(request), self.action, resource)


def principal_of(request: Request) -> Principal:
    """Who asks: whoever the server's authentication found, anonymous until there is one."""
    principal: Principal | None = request.scope.get("state", {}).get("principal")
    return principal or ANONYMOUS


@cache
def on_topic(action: Action) -> Any:  # noqa: ANN401 - what Depends returns has no public type
    """Ask about the topic in the path."""
    return Depends(Question(action, lambda request, _: Resource.topic(str(topic_in(request)))))


@cache
def on_namespace(action: Action) -> Any:  # noqa: ANN401 - as above
    """Ask about the namespace in the path."""
    return Depends(
        Question(action, lambda request, _: Resource.namespace(str(namespace_in(request))))
    )


@cache
def on_tenant(action: Action) -> Any:  # noqa: ANN401 - as above
    """Ask about the tenant in the path."""
    return Depends(
        Question(action, lambda request, _: Resource.tenant(path_value(request, "tenant")))
    )


@cache
def on_cluster(action: Action) -> Any:  # noqa: ANN401 - as above
    """Ask about the cluster in the path; about this one where the path names none."""

    def find(request: Request, services: Services) -> Resource:
        is_named = "cluster" in request.path_params
        return Resource.cluster(path_value(request, "cluster") if is_named else services.cluster)

    return Depends(Question(action, find))


@cache
def on_broker(action: Action) -> Any:  # noqa: ANN401 - as above
    """Ask about this broker."""
    return Depends(
        Question(action, lambda _, services: Resource.broker(services.ownership.address.broker_id))
    )
