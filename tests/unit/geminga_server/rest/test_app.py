"""An application answers what its routers do not, too."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize("path", ["/nope", "//self", "/topics/bogus/a/b/c"])
async def test_an_unknown_path_is_not_found(path: str, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"http://here:8080{path}")
    assert (answer.status_code, answer.json()) == (404, {"reason": "Not Found"})


async def test_a_wrong_method_says_which_is_right(client: httpx.AsyncClient) -> None:
    answer = await client.post("/self")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


async def test_head_asks_for_the_headers_of_get(client: httpx.AsyncClient) -> None:
    assert (await client.head("/self")).status_code == 204


async def test_a_slash_at_the_end_names_the_same_resource(client: httpx.AsyncClient) -> None:
    assert (await client.get("/self/")).status_code == 204


async def test_the_description_of_the_api_is_made_on_demand(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    assert described["info"] == {"title": "Geminga", "version": "1.2.3"}
    assert "/clusters/{cluster}" in described["paths"]
    assert (await client.get("/docs")).status_code == 404  # an application's own, if it has one
