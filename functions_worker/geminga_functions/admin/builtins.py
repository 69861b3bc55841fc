"""The built-in sources and sinks: ``/admin/v3/sources/builtinsources`` and the like."""

from __future__ import annotations

import inspect

from fastapi import APIRouter, Request
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


def _definitions(*, of_sources: bool, of_sinks: bool) -> list[dict[str, str]]:
    """The built-in connectors, each as upstream's ``ConnectorDefinition``."""
    found: list[dict[str, str]] = []
    for name, connector in sorted(BUILTIN.items()):
        is_source = issubclass(connector, Source)
        if not (of_sources if is_source else of_sinks):
            continue
        about = (inspect.getdoc(connector) or "").partition("\n")[0]
        member = "sourceClass" if is_source else "sinkClass"
        found.append({"name": name, "description": about, member: connector.__name__})
    return found


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
                    "required": str(each.is_required).lower(),
                    "defaultValue": "" if each.default is None else str(each.default),
                    "sensitive": str(each.is_secret).lower(),
                    "help": each.help,
                },
            }
            for each in connector.settings
        ]
    )


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
    """The built-in functions: there are none."""
    return Json([])


async def reload() -> Response:
    """Do nothing: built-in connectors are part of the worker and cannot have changed."""
    return no_content()


# Java's client uses the singular forms.
for _path, _handler in (
    ("/admin/v3/functions/connectors", get_connectors),
    ("/admin/v2/functions/connectors", get_connectors),
    ("/admin/v2/worker/connectors", get_connectors),
    ("/admin/v3/functions/builtins", get_functions),
    ("/admin/v3/sources/builtinsources", get_sources),
    ("/admin/v3/source/builtinsources", get_sources),
    ("/admin/v3/sinks/builtinsinks", get_sinks),
    ("/admin/v3/sink/builtinsinks", get_sinks),
    ("/admin/v3/sources/builtinsources/{name}/configdefinition", get_config_definition),
    ("/admin/v3/source/builtinsources/{name}/configdefinition", get_config_definition),
    ("/admin/v3/sinks/builtinsinks/{name}/configdefinition", get_config_definition),
    ("/admin/v3/sink/builtinsinks/{name}/configdefinition", get_config_definition),
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
