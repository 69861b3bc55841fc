"""Functions, sources, sinks and workers: served by a functions worker, never by the broker.

A broker with a worker forwards these calls before they reach this application
(``geminga_broker.functions_worker``). Here, where there is none, they are all refused with
upstream's text, which admin tools understand.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.convertors import register_url_convertor
from starlette.responses import Response

from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import Word


class _WorkerKind(Word):
    # Java's client, and pulsar-admin with it, asks for /source and /sink; Go's for the plurals.
    regex = "functions|sources?|sinks?"


register_url_convertor("worker_kind", _WorkerKind())

router = APIRouter()

REASON = "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false"
# All of them also reach workers through the forwarder, so that the same calls work with one.
PATHS = (
    "/admin/v2/worker/{rest:path}",
    "/admin/v2/worker-stats/{rest:path}",
    "/admin/v3/{kind:worker_kind}",
    "/admin/v3/{kind:worker_kind}/{rest:path}",
)


async def refuse() -> Response:
    """Refuse a call: no functions worker is configured."""
    raise RestError(409, REASON)


# All methods of all paths, but not on the API page: this broker does not serve them.
for _path in PATHS:
    router.add_api_route(
        _path,
        refuse,
        methods=["GET", "PUT", "POST", "DELETE"],
        dependencies=[on_cluster(Action.READ)],
        include_in_schema=False,
    )
