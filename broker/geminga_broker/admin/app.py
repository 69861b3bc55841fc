"""The broker's REST application: one router per resource.

Importing this imports the web framework, which takes a third of a second: do it once the broker's
binary port is open.
"""

from __future__ import annotations

from fastapi import FastAPI

from geminga_broker.admin.routes.cluster import (
    brokers,
    clusters,
    entrance,
    functions,
    metrics,
    tenants,
)
from geminga_broker.admin.routes.namespace import backlog, namespaces, policies, replication
from geminga_broker.admin.routes.topic import (
    lookup,
    messages,
    partitions,
    schemas,
    stats,
    storage,
    subscriptions,
    topic_policies,
    topics,
)
from geminga_broker.admin.services import Services
from geminga_broker.admin.statuses import answer_error
from geminga_server.authorization import Resource
from geminga_server.http.server import AsgiApp, Receive, Scope, Send
from geminga_server.rest.access import Access
from geminga_server.rest.app import make_app

# In this order routes are tried, and stand on the API page: of the cluster, of namespaces, of
# topics; then lookup, functions, metrics and the entrance page.
ROUTERS = (
    clusters.router,
    tenants.router,
    brokers.router,
    brokers.stats_router,
    namespaces.router,
    backlog.router,
    policies.router,
    replication.router,
    topics.router,
    partitions.router,
    stats.router,
    storage.router,
    topic_policies.router,
    subscriptions.router,
    messages.router,
    schemas.router,
    lookup.router,
    functions.router,
    metrics.router,
    entrance.router,
)


def answering_for(listener: str, app: AsgiApp) -> AsgiApp:
    """``app`` for requests that come in on a bind address of that advertised listener.

    Redirects and lookups then give the client addresses of the same listener.
    """

    # One application for all ports: only the listener's name differs, and travels with the request.
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # ``parameters.listener_of`` reads it.
        scope.setdefault("state", {})["listener"] = listener
        await app(scope, receive, send)

    return answer


def create_app(services: Services) -> FastAPI:
    """The ASGI application that serves ``services``."""
    server = Resource("broker", services.ownership.address.broker_id)
    # The dependencies of each route ask ``access`` before its handler runs.
    app = make_app(
        ROUTERS,
        version=services.version,
        access=Access(services.authorize, services.cluster, server),
        answer_error=answer_error,
    )
    # Handlers get it as ``ServicesArg``.
    app.state.services = services
    return app
