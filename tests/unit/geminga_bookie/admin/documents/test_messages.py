"""Requests are parsed, and answers made, whatever a client sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from geminga_bookie.admin.documents.messages import Refused, Request, json_object, parse_parameters


def test_of_two_parameters_of_a_name_the_last_counts() -> None:
    assert parse_parameters(b"a=1&b=&a=2&c=x%20y&d") == {"a": "2", "b": "", "c": "x y", "d": ""}


@pytest.mark.parametrize("words", ["", "x", "1.5", "\u0663", "9" * 19, "9" * 400, "--1"])
def test_what_is_no_number_is_refused(words: str) -> None:
    request = Request("GET", {"page": words})
    with pytest.raises(Refused) as refused:
        request.integer("page")
    assert refused.value.status == 400
    assert "page" in refused.value.reason


def test_a_missing_number_is_the_default_or_refused() -> None:
    request = Request("GET", {"there": "-7"})
    assert (request.integer("there"), request.integer("gone", 3)) == (-7, 3)
    with pytest.raises(Refused):
        request.integer("gone")


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_an_object_in_pieces_is_json(count: int) -> None:
    async def members() -> AsyncIterator[tuple[str, object]]:
        for number in range(count):
            await asyncio.sleep(0)
            yield f'"{number}\n', {"number": [number, None]}

    text = b"".join([piece async for piece in json_object(members())])
    assert json.loads(text) == {f'"{n}\n': {"number": [n, None]} for n in range(count)}
