"""The built-in sources and sinks: ``/admin/v3/sources/builtinsources`` and the like."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from geminga_functions.api import Sink, Source
from geminga_functions.connectors import BUILTIN
from geminga_server.authorization import Action
from geminga_server.rest.access import on_cluster
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import path_value

READS = [on_cluster(Action.READ)]

router = APIRouter()


# Which kinds of built-in components each path lists; there are no built-in functions. Java's client
# uses the singular forms.
LISTED: Mapping[str, tuple[type, ...]] = {
    "/admin/v3/functions/connectors": (Source, Sink),
    "/admin/v2/functions/connectors": (Source, Sink),
    "/admin/v2/worker/connectors": (Source, Sink),
    "/admin/v3/functions/builtins": (),
    "/admin/v3/sources/builtinsources": (Source,),
    "/admin/v3/source/builtinsources": (Source,),
    "/admin/v3/sinks/builtinsinks": (Sink,),
    "/admin/v3/sink/builtinsinks": (Sink,),
}


async def get_definitions(request: Request) -> Response:
    """The built-in sources or sinks, or both, each as upstream's ``ConnectorDefinition``."""
    # The path of the route, since that of the request may be escaped.
    route: APIRoute = request.scope["route"]
    kinds = LISTED[route.path]
    found: list[dict[str, str]] = []
    for name, connector in sorted(BUILTIN.items()):
        # Nothing is a subclass of no kinds at all: the list is empty then.
        if not issubclass(connector, kinds):
            continue
        # The first line of the class's docstring, which is written for users.
        about = (inspect.getdoc(connector) or "").partition("\n")[0]
        member = "sourceClass" if issubclass(connector, Source) else "sinkClass"
        # A class name without a module: the worker finds it by ``name`` alone.
        found.append({"name": name, "description": about, member: connector.__name__})
    return Json(found)


async def get_config_definition(request: Request) -> Response:
    """The settings of a built-in connector, each as upstream's ``ConfigFieldDefinition``.

    Raises ``RestError``.
    """
    name = path_value(request, "name")
    connector = BUILTIN.get(name)
    wanted = Source if "/source" in request.url.path else Sink
    if connector is None or wanted not in connector.__mro__:
        raise RestError(404, f"There is no built-in {wanted.__name__.lower()} {name!r}")
    return Json(
        [
            {
                "fieldName": each.name,
                "typeName": each.kind.__name__,
                "attributes": {
                    # Upstream's attributes are a map of texts.
                    "required": str(each.is_required).lower(),
                    "defaultValue": "" if each.default is None else str(each.default),
                    "sensitive": str(each.is_secret).lower(),
                    "help": each.help,
                },
            }
            for each in connector.settings
        ]
    )


async def reload() -> Response:
    """Do nothing: built-in connectors are part of the worker and cannot have changed."""
    return no_content()


# Below the handlers that they name; the paths are registered in the order of the table.
for _path in LISTED:
    router.add_api_route(_path, get_definitions, methods=["GET"], dependencies=READS)

for _path in (
    "/admin/v3/sources/builtinsources/{name}/configdefinition",
    "/admin/v3/source/builtinsources/{name}/configdefinition",
    "/admin/v3/sinks/builtinsinks/{name}/configdefinition",
    "/admin/v3/sink/builtinsinks/{name}/configdefinition",
):
    router.add_api_route(_path, get_config_definition, methods=["GET"], dependencies=READS)

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
