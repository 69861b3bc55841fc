"""``/`` and ``/docs``: the entrance page, and a page with every call of the REST API."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from geminga_broker.admin.parameters import ServicesArg
from geminga_server.authorization import Action
from geminga_server.rest.access import on_server
from geminga_server.rest.answers import Json
from geminga_server.rest.api_page import calls_of, render_api_page

router = APIRouter()

NAME = "Geminga"
API = "Apache Pulsar's admin API, as far as this broker serves it."
# Where a person or a tool goes on from the entrance page.
LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "metrics": "/metrics/",
    "health": "/admin/v2/brokers/health",
    "configuration": "/admin/v2/brokers/configuration/runtime",
    "clusters": "/admin/v2/clusters",
    "tenants": "/admin/v2/tenants",
}


@router.get("/", dependencies=[on_server(Action.READ)])
async def introduce(services: ServicesArg) -> Response:
    """The name and version of this broker, the version of Pulsar it answers as, and links."""
    return Json(
        {
            "name": NAME,
            # The version of this software; ``pulsarVersion`` is the one that clients and tools go
            # by.
            "version": version("geminga"),
            "pulsarVersion": services.version,
            "cluster": services.cluster,
            "brokerId": services.ownership.address.broker_id,
            "links": LINKS,
        }
    )


@router.get("/docs", dependencies=[on_server(Action.READ)])
async def show_api(request: Request) -> Response:
    """This page: every call of the REST API."""
    # Made anew at each request, which takes milliseconds: people ask for it now and then.
    calls = calls_of(request.app.state.routers)
    return HTMLResponse(render_api_page(f"{NAME}: REST API", API, calls))
