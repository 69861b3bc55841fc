"""Names in paths are any that can be; bodies are JSON whatever content type came, and bounded."""

from __future__ import annotations

import httpx
import pytest

from geminga_server.rest.parameters import BODY_BYTES_MAX

URL = "/topics/persistent/public/default/t"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json", "x/y; z=1"])
async def test_any_content_type_is_taken(
    content_type: str | None, client: httpx.AsyncClient
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await client.put("/body", content=b"3", headers=headers)
    assert answer.json() == 3


@pytest.mark.parametrize("body", [b"", b"  ", b"null", b"{}"])
async def test_no_body_is_as_good_as_an_empty_one(body: bytes, client: httpx.AsyncClient) -> None:
    assert (await client.put(URL, content=body)).json() == {}


@pytest.mark.parametrize("body", [b"{", b"[1", b"nonsense", b"\xff", b"[" * 100_000])
async def test_what_is_no_json_is_refused_with_the_reason(
    body: bytes, client: httpx.AsyncClient
) -> None:
    answer = await client.put(URL, content=body)
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith("The body is not JSON: ")


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b'{"a": 1}', b'{"a": {"b": "c"}}'])
async def test_properties_are_texts(body: bytes, client: httpx.AsyncClient) -> None:
    answer = await client.put(URL, content=body)
    assert answer.status_code == 400
    assert "JSON object" in answer.json()["reason"]


async def test_a_body_beyond_the_bound_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.put(URL, content=b'"' + b"x" * BODY_BYTES_MAX + b'"')
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/namespaces/public/de%20fault", "Namespace name is not valid"),
        ("/namespaces/pub%2Flic/default", "Namespace name is not valid"),
        ("/namespaces/public/%2E%2E", "Namespace name is not valid"),
        ("/topics/persistent/public/%C3%A4/t", "Topic name is not valid"),
        (
            "/topics/persistent/public/default/%2E%2E",
            "invalid name 'persistent://public/default/..': ZooKeeper has no nodes called . or ..",
        ),
    ],
)
async def test_a_name_that_cannot_be_is_refused(
    path: str, reason: str, client: httpx.AsyncClient
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()) == (412, {"reason": reason})
