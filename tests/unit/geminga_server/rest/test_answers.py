"""Every error is an answer with a status and a reason, or the address where to ask."""

from __future__ import annotations

import logging

import httpx
import pytest


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        ("lost", 410, "it is lost"),
        ("misplaced", 410, "look again"),
        ("unknown", 500, "it has no status of its own"),
        ("name", 412, "invalid name 'a b': a blank"),
        ("bug", 500, "An unexpected error occurred in the server: ZeroDivisionError('ours')"),
    ],
)
async def test_an_error_has_the_status_of_its_class(
    error: str, status: int, reason: str, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"/errors/{error}")
    assert (answer.status_code, answer.json()) == (status, {"reason": reason})


async def test_an_error_of_ours_without_a_status_is_logged(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await client.get("/errors/lost")
        assert not caplog.records
        await client.get("/errors/unknown")
    assert [record.getMessage() for record in caplog.records] == ["request failed"]


async def test_what_another_server_answers_is_a_redirection(client: httpx.AsyncClient) -> None:
    answer = await client.get("/errors/elsewhere")
    assert answer.status_code == 307
    assert answer.headers["Location"] == "http://elsewhere:8080/errors/elsewhere"


async def test_json_has_no_spaces_and_characters_as_they_are(client: httpx.AsyncClient) -> None:
    answer = await client.put("/body", content='{"a": ["ä", 1]}'.encode())
    assert answer.content == '{"a":["ä",1]}'.encode()
    assert answer.headers["Content-Type"] == "application/json"
