"""The application answers as a real broker did, request by request, and never without a reason."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from tests.project_files import GOLDEN

from geminga_server.http.server import HttpServer
from geminga_server.rest.raw_path import RawPath

RECORDED = GOLDEN / "admin"

# Where we answer otherwise on purpose: (method, path, body) → our status.
DEVIATIONS = {
    # Upstream fails with a NullPointerException.
    ("PUT", "/admin/v2/persistent/acme/shop/parts4/partitions", None): 400,
    ("POST", "/admin/v2/namespaces/public/p1/backlogQuota", "null"): 400,
    ("POST", "/admin/v2/namespaces/public/p1/backlogQuota", ""): 400,
    # Nonsense is not found, rather than an error of the server.
    ("GET", "/lookup/v2/topic/bogus/public/default/t1", None): 404,
    # A namespace that does not exist has no bundles.
    ("GET", "/lookup/v2/topic/persistent/public/nope/t1/bundle", None): 404,
    # A name that cannot be is said to be one before anything else is.
    ("DELETE", "/admin/v2/non-persistent/public/bad%20ns/t/truncate", None): 412,
    # Ours says there what it is.
    ("GET", "/", None): 200,
    ("OPTIONS", "/admin/v2/clusters", None): 405,
    ("PATCH", "/admin/v2/clusters", None): 405,
}
# Topics of which every one is one parameter of a path. ZooKeeper has no node for the name "..".
NAMES = ["a/b %?", "a%2Fb", "%", "+", "中", "a//b", "...", "-", "a;b=c", "a&b", "\n", "#x", "~"]
# Recorded answers that are wrong there: the list lacks a topic whose name was just created.
LACKING = {"persistent://acme/shop/a/b %?"}


def recorded(name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]
    # What upstream refuses for its content type, or for the shape of its body, we take: sending it
    # would change what later requests see.
    taken = {"/admin/v2/persistent/acme/shop/parts3/partitions"}
    return [row for row in rows if row["status"] != 415 and row["path"] not in taken]


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def assert_same(row: dict[str, Any], ours: httpx.Response) -> None:
    request = (row["method"], row["path"], row.get("body"))
    assert ours.status_code == DEVIATIONS.get(request, row["status"]), (request, ours.text)
    real = as_json(row["answer"])
    if request in DEVIATIONS or "unexpected error occurred" in row["answer"]:
        return
    if real is None or row["path"].split("?")[0].endswith("stats"):
        return  # not JSON there (pages, Jackson's complaints); stats have tests of their own
    if row["path"].startswith("/lookup"):
        assert real.items() <= ours.json().items(), request  # ours names the TLS URLs as well
    elif isinstance(real, list):
        assert set(ours.json()) - LACKING == set(real), request
    else:
        assert ours.json() == real, request


@pytest.mark.parametrize("name", ["answers.jsonl", "policies.jsonl", "storage.jsonl"])
async def test_a_whole_session_is_answered_as_by_a_real_broker(
    name: str, client: httpx.AsyncClient
) -> None:
    for row in recorded(name):
        ours = await client.request(
            row["method"], row["path"], content=row.get("body"), headers=row.get("headers")
        )
        assert_same(row, ours)


@pytest.mark.parametrize("path", ["/nope", "/admin/v2/nope", "/admin/v2//clusters"])
async def test_an_unknown_path_is_not_found(path: str, client: httpx.AsyncClient) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"reason": "Not Found"})


async def test_a_wrong_method_says_which_is_right(client: httpx.AsyncClient) -> None:
    answer = await client.post("/admin/v2/brokers/health")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


async def test_head_asks_for_the_headers_of_get(client: httpx.AsyncClient) -> None:
    assert (await client.head("/admin/v2/clusters")).status_code == 200


async def test_a_slash_at_the_end_names_the_same_resource(client: httpx.AsyncClient) -> None:
    assert (await client.get("/admin/v2/clusters/")).json() == ["standalone"]


async def test_our_own_mistake_is_an_answer_too(app: FastAPI, client: httpx.AsyncClient) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("ours")

    answer = await client.get("/broken")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["reason"]


async def test_the_description_of_the_api_is_made_on_demand(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    assert "/admin/v2/clusters/{cluster}" in described["paths"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_topic_name_round_trips(name: str, client: httpx.AsyncClient) -> None:
    encoded = quote(name, safe="").replace(".", "%2E")
    url = f"/admin/v2/persistent/public/default/{encoded}"
    assert (await client.put(url)).status_code == 204
    listed = (await client.get("/admin/v2/persistent/public/default")).json()
    assert listed == [f"persistent://public/default/{name}"]
    assert (await client.get(f"{url}/stats")).status_code == 200
    lookup = f"/lookup/v2/topic/persistent/public/default/{encoded}"
    assert (await client.get(lookup)).status_code == 200
    assert (await client.delete(url)).status_code == 204


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path that would be routed."""
    del receive
    body = str(scope["path"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.real_loop
@pytest.mark.parametrize("name", [*NAMES, ".."])
async def test_sockets_change_nothing_in_a_name(name: str) -> None:
    encoded = quote(name, safe="").replace(".", "%2E")
    url = f"/admin/v2/persistent/public/default/{encoded}"
    async with (
        HttpServer(RawPath(echo), "127.0.0.1", 0) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        assert (await client.get(url)).text == url
        assert (await client.put(url)).text == url
        assert (await client.head(f"{url}/stats")).status_code == 200
