"""No route answers before it has asked whether it may."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from geminga_broker.admin.app import ROUTERS, create_app
from geminga_broker.admin.services import Services
from geminga_server.authorization import ANONYMOUS, Action, Principal, Resource
from geminga_server.rest.access import questions_of

# POSTs that who may produce may do, as its producers would, and POSTs that change nothing.
ASK_OTHERWISE = {
    "post_schema": Action.PRODUCE,
    "test_compatibility": Action.READ,
    "get_version_of_schema": Action.READ,
}


def routes() -> list[APIRoute]:
    found = [route for router in ROUTERS for route in router.routes]
    assert len(found) > 30
    return [route for route in found if isinstance(route, APIRoute)]


@pytest.mark.parametrize("route", routes(), ids=lambda one: f"{sorted(one.methods)} {one.path}")
def test_every_route_asks_once(route: APIRoute) -> None:
    questions = questions_of(route)
    assert len(questions) == 1
    changes = (route.methods or set()) <= {"PUT", "POST", "DELETE"}
    if route.name in ASK_OTHERWISE:
        assert questions[0].action is ASK_OTHERWISE[route.name]
        return
    assert (questions[0].action is Action.ADMINISTER) == changes


async def test_an_unauthorized_request_is_answered_with_the_reason(
    refusing_client: httpx.AsyncClient,
) -> None:
    async with refusing_client as client:
        answer = await client.get("/admin/v2/tenants/public")
    assert answer.status_code == 403
    assert answer.json() == {"reason": "an anonymous client may not read on tenant public"}


@pytest.mark.parametrize(
    ("method", "path", "action", "resource"),
    [
        ("GET", "/admin/v2/clusters", Action.READ, Resource("cluster", "standalone")),
        ("GET", "/admin/v2/clusters/c%2F1", Action.READ, Resource("cluster", "c/1")),
        ("PUT", "/admin/v2/tenants/acme", Action.ADMINISTER, Resource("tenant", "acme")),
        ("GET", "/admin/v2/namespaces/a/b", Action.READ, Resource("namespace", "a/b")),
        ("GET", "/admin/v2/brokers/health", Action.READ, Resource("broker", "127.0.0.1:28080")),
        (
            "DELETE",
            "/admin/v2/non-persistent/a/b/c%2Fd",
            Action.ADMINISTER,
            Resource("topic", "non-persistent://a/b/c/d"),
        ),
        (
            "GET",
            "/lookup/v2/topic/persistent/a/b/%E4%B8%AD",
            Action.LOOKUP,
            Resource("topic", "persistent://a/b/中"),
        ),
    ],
)
async def test_the_question_names_the_resource(
    method: str, path: str, action: Action, resource: Resource, services: Services
) -> None:
    asked: list[tuple[Principal, Action, Resource]] = []

    async def remember(principal: Principal, action: Action, resource: Resource) -> None:
        asked.append((principal, action, resource))

    await send(create_app(replace(services, authorize=remember)), method, path)
    assert asked == [(ANONYMOUS, action, resource)]


async def send(app: FastAPI, method: str, path: str) -> None:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        await client.request(method, path)
