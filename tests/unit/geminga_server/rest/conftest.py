"""A small REST application, of no server in particular, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from geminga_protocol.pulsar.errors import InvalidTopicName
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action, Resource, allow_all
from geminga_server.rest.access import (
    Access,
    on_cluster,
    on_namespace,
    on_server,
    on_tenant,
    on_topic,
)
from geminga_server.rest.answers import Json, answer_errors, no_content
from geminga_server.rest.app import make_app
from geminga_server.rest.errors import ServedElsewhere
from geminga_server.rest.parameters import NamespaceArg, TopicArg, json_body, text_map_body


class Lost(GemingaError):
    """An error of the application's own, with a status."""


class Misplaced(Lost):
    """One that descends from it, and is told otherwise."""


ERRORS: dict[str, Exception] = {
    "lost": Lost("it is lost"),
    "misplaced": Misplaced("it is misplaced"),
    "unknown": GemingaError("it has no status of its own"),
    "elsewhere": ServedElsewhere("http://elsewhere:8080/errors/elsewhere"),
    "name": InvalidTopicName("a b", "a blank"),
    "bug": ZeroDivisionError("ours"),
}
SERVER = Resource("broker", "127.0.0.1:8080")
TOPIC = "/topics/{domain:domain}/{tenant}/{namespace}/{topic}"

router = APIRouter()


@router.get(TOPIC, dependencies=[on_topic(Action.READ)])
async def get_topic(topic: TopicArg) -> Response:
    """The name of the topic in the path."""
    return Json(str(topic))


@router.put(TOPIC, dependencies=[on_topic(Action.ADMINISTER)])
async def put_properties(request: Request, topic: TopicArg) -> Response:
    """The properties in the body."""
    del topic
    return Json(await text_map_body(request))


@router.get("/namespaces/{tenant}/{namespace}", dependencies=[on_namespace(Action.READ)])
async def get_namespace(namespace: NamespaceArg) -> Response:
    """The name of the namespace in the path."""
    return Json(str(namespace))


@router.get("/tenants/{tenant}", dependencies=[on_tenant(Action.READ)])
@router.get("/clusters/{cluster}", dependencies=[on_cluster(Action.READ)])
@router.get("/clusters", dependencies=[on_cluster(Action.READ)])
@router.get("/self", dependencies=[on_server(Action.READ)])
async def do_nothing() -> Response:
    """Nothing."""
    return no_content()


@router.put("/body", dependencies=[on_server(Action.ADMINISTER)])
async def echo(request: Request) -> Response:
    """The body as it was understood."""
    return Json(await json_body(request))


@router.get("/errors/{name}", dependencies=[on_server(Action.READ)])
async def fail(name: str) -> Response:
    """Fail so."""
    raise ERRORS[name]


@pytest.fixture
def app() -> FastAPI:
    """The application."""
    return make_app(
        [router],
        version="1.2.3",
        access=Access(allow_all, "here", SERVER),
        answer_error=answer_errors({Lost: 410}, {Misplaced: "look again"}),
    )


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ``app``."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here:8080") as opened:
        yield opened
