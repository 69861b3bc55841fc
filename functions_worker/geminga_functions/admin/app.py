"""The REST application of a functions worker."""

from __future__ import annotations

from fastapi import FastAPI

from geminga import ClientError
from geminga_functions.admin import builtins, components, packages, state, trigger, workers
from geminga_functions.admin.facade import Facade
from geminga_functions.errors import (
    ClusterUnknown,
    InvalidDefinition,
    InvalidName,
    NotLeader,
    PackageError,
    PackageRefused,
    PackageTooLarge,
    StateTooLarge,
)
from geminga_functions.worker import Worker
from geminga_protocol.pulsar.features import SERVER_VERSION
from geminga_server.authorization import Resource, allow_all
from geminga_server.rest.access import Access
from geminga_server.rest.answers import answer_errors
from geminga_server.rest.app import make_app

# ``builtins`` comes first: some of its paths are also of the form of a component's.
ROUTERS = (
    # Starlette takes the first route that matches.
    builtins.router,
    components.router,
    packages.router,
    state.router,
    trigger.router,
    workers.router,
)

# Errors that handlers do not catch, and the status of each; a subclass goes by its own entry before
# that of its base.
answer_error = answer_errors(
    {
        # The names, configs and packages of users.
        InvalidName: 400,
        InvalidDefinition: 400,
        PackageTooLarge: 413,
        StateTooLarge: 413,
        PackageRefused: 400,
        PackageError: 500,
        # What passes by itself: the same request may succeed in a moment.
        NotLeader: 503,
        ClusterUnknown: 503,
        # After a publish that failed it is unknown whether the change is stored.
        ClientError: 503,
    }
)


def worker_app(worker: Worker) -> FastAPI:
    """The application of ``worker``; an ASGI server serves it."""
    app = make_app(
        ROUTERS,
        version=SERVER_VERSION,
        # Every request is allowed: a worker is reached through brokers or a proxy.
        access=Access(
            allow_all,
            worker.config.pulsar_functions_cluster,
            Resource("cluster", worker.config.pulsar_functions_cluster),
        ),
        answer_error=answer_error,
    )
    # Handlers get it as an argument: see ``components``.
    app.state.facade = Facade(worker)
    return app
