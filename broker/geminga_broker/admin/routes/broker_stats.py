"""``/admin/v2/broker-stats``: how much this broker has to do, as the load manager is told."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_server.authorization import Action
from geminga_server.rest.access import on_server
from geminga_server.rest.answers import json_record
from geminga_server.rest.errors import RestError

router = APIRouter(prefix="/admin/v2/broker-stats")


@router.get("/load-report", dependencies=[on_server(Action.READ)])
async def get_load_report(services: ServicesArg) -> Response:
    """The load report, as this broker would write it now."""
    return json_record(services.brokers.record())


@router.get(
    "/broker-resource-availability/{tenant}/{namespace}", dependencies=[on_server(Action.READ)]
)
async def get_resource_availability() -> Response:
    """Refuse, as upstream does with its modular load manager: only the one before it reckoned with
    units of resources."""
    raise RestError(409, "The load manager does not support this operation")
