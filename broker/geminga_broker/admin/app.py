"""The REST application: one router per resource on the raw path, errors as Pulsar tells them.

Importing this imports the web framework, which takes a third of a second: do it once the broker's
binary port is open. Making the application takes a few milliseconds; the OpenAPI document is made
when somebody first asks for ``/openapi.json``.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from geminga_broker.admin.answers import answer_error
from geminga_broker.admin.facade import Services
from geminga_broker.admin.raw_path import RawPath
from geminga_broker.admin.routes import (
    brokers,
    clusters,
    entrance,
    functions,
    lookup,
    messages,
    metrics,
    namespace_backlog,
    namespaces,
    partitions,
    policies,
    schemas,
    subscriptions,
    tenants,
    topic_compaction,
    topic_stats,
    topic_storage,
    topics,
)
from geminga_runtime.errors import GemingaError
from geminga_server.http import AsgiApp, Receive, Scope, Send

ROUTERS = (
    clusters.router,
    tenants.router,
    brokers.router,
    namespaces.router,
    namespace_backlog.router,
    policies.router,
    topics.router,
    partitions.router,
    topic_stats.router,
    topic_storage.router,
    topic_compaction.router,
    subscriptions.router,
    messages.router,
    schemas.router,
    lookup.router,
    functions.router,
    metrics.router,
    entrance.router,
)


def answering_for(listener: str, app: AsgiApp) -> AsgiApp:
    """``app`` for requests that come by a bind address of that advertised listener."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["listener"] = listener
        await app(scope, receive, send)

    return answer


def create_app(services: Services) -> FastAPI:
    """The application on ``services``; an ASGI server serves it."""
    app = FastAPI(
        title="Geminga",
        version=services.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.routers = ROUTERS
    for router in ROUTERS:
        app.include_router(router)
    for kind in (GemingaError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)
    app.add_middleware(RawPath)
    return app
