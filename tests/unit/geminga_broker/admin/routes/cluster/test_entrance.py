"""A user who only knows where the broker is finds out what it is and what it can be asked."""

from __future__ import annotations

from importlib.metadata import version

import httpx


async def test_the_root_says_what_this_is_and_where_to_go_on(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["name"], told["version"]) == ("Geminga", version("geminga"))
    assert (told["pulsarVersion"], told["cluster"]) == ("4.0.6", "standalone")
    for path in told["links"].values():
        assert (await client.get(path)).status_code == 200, path


async def test_the_docs_are_a_page_that_lists_the_api(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/admin/v2/clusters", "/lookup/v2/topic", "/admin/v2/brokers/health"):
        assert path in answer.text
