"""What every worker has: ``/admin/v3/sources/builtinsources`` and the like."""

from __future__ import annotations

import inspect

from fastapi import APIRouter
from starlette.responses import Response

from geminga_functions.api import Source
from geminga_functions.connectors import BUILTIN
from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster
from geminga_server.rest.answers import Json, no_content

READS = [on_cluster(Action.READ)]

router = APIRouter()


def _definitions(*, of_sources: bool, of_sinks: bool) -> list[dict[str, str]]:
    """Upstream's ``ConnectorDefinition`` of each."""
    found: list[dict[str, str]] = []
    for name, connector in sorted(BUILTIN.items()):
        is_source = isinstance(connector, type) and issubclass(connector, Source)
        if not (of_sources if is_source else of_sinks):
            continue
        about = (inspect.getdoc(connector) or "").partition("\n")[0]
        member = "sourceClass" if is_source else "sinkClass"
        class_name = getattr(connector, "__name__", name)
        found.append({"name": name, "description": about, member: class_name})
    return found


async def get_connectors() -> Response:
    """All built-in sources and sinks."""
    return Json(_definitions(of_sources=True, of_sinks=True))


async def get_sources() -> Response:
    """The built-in sources."""
    return Json(_definitions(of_sources=True, of_sinks=False))


async def get_sinks() -> Response:
    """The built-in sinks."""
    return Json(_definitions(of_sources=False, of_sinks=True))


async def get_functions() -> Response:
    """There are no built-in functions."""
    return Json([])


async def reload() -> Response:
    """What is built in is part of the worker, and cannot have changed."""
    return no_content()


# Java's client asks for the singular.
for _path, _handler in (
    ("/admin/v3/functions/connectors", get_connectors),
    ("/admin/v3/functions/builtins", get_functions),
    ("/admin/v3/sources/builtinsources", get_sources),
    ("/admin/v3/source/builtinsources", get_sources),
    ("/admin/v3/sinks/builtinsinks", get_sinks),
    ("/admin/v3/sink/builtinsinks", get_sinks),
):
    router.add_api_route(_path, _handler, methods=["GET"], dependencies=READS)

for _path in (
    "/admin/v3/functions/builtins/reload",
    "/admin/v3/sources/reloadBuiltInSources",
    "/admin/v3/source/reloadBuiltInSources",
    "/admin/v3/sinks/reloadBuiltInSinks",
    "/admin/v3/sink/reloadBuiltInSinks",
):
    router.add_api_route(
        _path, reload, methods=["POST"], dependencies=[on_cluster(Action.ADMINISTER)]
    )
