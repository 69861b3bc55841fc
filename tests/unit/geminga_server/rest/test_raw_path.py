"""Routing sees the path as it was sent, so that any topic name is one parameter."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from geminga_server.http.server import HttpServer
from geminga_server.rest.raw_path import RawPath

NAMES = ["a/b %?", "a%2Fb", "%", "+", "中", "a//b", "../b", "-", "a;b=c", "a&b", "\n", "#x", "~"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_topic_name_is_one_parameter(name: str, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"/topics/persistent/public/default/{encoded(name)}")
    assert answer.json() == f"persistent://public/default/{name}"


@pytest.mark.real_loop
@pytest.mark.parametrize("name", NAMES)
async def test_any_topic_name_is_one_parameter_through_sockets(name: str, app: FastAPI) -> None:
    url = f"/topics/persistent/public/default/{encoded(name)}"
    async with (
        HttpServer(app, "127.0.0.1", 0) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        assert (await client.get(url)).json() == f"persistent://public/default/{name}"
        assert (await client.head(url)).status_code == 200


def encoded(name: str) -> str:
    """``name`` as clients send it in a path."""
    return quote(name, safe="").replace(".", "%2E")


async def routed(scope: dict[str, Any]) -> dict[str, Any]:
    """What the application behind the middleware is given; nothing when it refuses."""
    seen: dict[str, Any] = {}

    async def app(inner: Scope, _receive: Receive, _send: Send) -> None:
        seen.update(inner)

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        seen.setdefault("status", message.get("status"))

    await RawPath(app)(scope, receive, send)
    return seen


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/a%2Fb", "/a%2Fb"),
        (b"/a/", "/a"),
        (b"/", "/"),
        (b"/metrics/", "/metrics/"),
        (b"/a%2F", "/a%2F"),
    ],
)
async def test_the_routed_path_is_the_raw_one(raw: bytes, path: str) -> None:
    scope = {"type": "http", "method": "GET", "raw_path": raw, "path": "decoded"}
    assert (await routed(scope))["path"] == path


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(raw=st.binary(max_size=30))
async def test_no_bytes_break_it(raw: bytes) -> None:
    seen = await routed({"type": "http", "method": "GET", "raw_path": b"/" + raw, "path": ""})
    assert seen.get("status") == 400 or seen["path"].startswith("/")


async def test_a_path_that_decodes_to_no_text_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get("/tenants/%FF")
    assert answer.status_code == 400
    assert "UTF-8" in answer.json()["reason"]


async def test_other_kinds_of_scope_pass_untouched() -> None:
    assert await routed({"type": "lifespan"}) == {"type": "lifespan"}
