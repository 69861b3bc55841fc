"""``/`` and ``/docs``: what somebody finds who only knows where the broker is."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from geminga_broker.admin.access import on_broker
from geminga_broker.admin.answers import Json
from geminga_broker.admin.api_page import calls_of, render_api_page
from geminga_broker.admin.parameters import ServicesArg
from geminga_server.authorization import Action

router = APIRouter()

NAME = "Geminga"
LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "metrics": "/metrics/",
    "health": "/admin/v2/brokers/health",
    "configuration": "/admin/v2/brokers/configuration/runtime",
    "clusters": "/admin/v2/clusters",
    "tenants": "/admin/v2/tenants",
}


@router.get("/", dependencies=[on_broker(Action.READ)])
async def introduce(services: ServicesArg) -> Response:
    """What this is, its version and that of Pulsar it answers as, and where to go on."""
    return Json(
        {
            "name": NAME,
            "version": version("geminga"),
            "pulsarVersion": services.version,
            "cluster": services.cluster,
            "brokerId": services.ownership.address.broker_id,
            "links": LINKS,
        }
    )


@router.get("/docs", dependencies=[on_broker(Action.READ)])
async def show_api(request: Request) -> Response:
    """This page: every call of the REST API."""
    return HTMLResponse(render_api_page(f"{NAME}: REST API", calls_of(request.app.state.routers)))
