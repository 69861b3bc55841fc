"""Proves that forms are read as they were sent, wherever their bytes are cut, and that what is no
form is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from geminga_functions.admin.forms import HEAD_BYTES_MAX, PARTS_MAX, TEXT_BYTES_MAX, parts_of
from geminga_server.rest.errors import BodyTooLarge, RestError

TYPE = 'multipart/form-data; boundary="edge"'
FORM = (
    b"before\r\n--edge\r\n"
    b'Content-Disposition: form-data; name="data"; filename="a\\"b.py"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n"
    b"one\r\n--edg\r\n\r\ntwo\r\n--edge\r\n"
    b'Content-Disposition: form-data; name="url"\r\n\r\n'
    b"\r\n--edge--\r\nafter"
)
PARTS = [("data", 'a"b.py', b"one\r\n--edg\r\n\r\ntwo"), ("url", "", b"")]


async def cut(body: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), size):
        yield body[begin : begin + size]


async def read(body: bytes, size: int, content_type: str = TYPE) -> list[tuple[str, str, bytes]]:
    return [
        (part.name, part.file_name, await part.read())
        async for part in parts_of(content_type, cut(body, size))
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, len(FORM)])
async def test_a_form_is_read_wherever_it_is_cut(size: int) -> None:
    assert await read(FORM, size) == PARTS


async def test_the_unread_content_of_a_part_is_passed_over() -> None:
    names = [part.name async for part in parts_of(TYPE, cut(FORM, 5))]
    assert names == ["data", "url"]


@pytest.mark.parametrize("length", range(len(FORM) - len(b"--\r\nafter")))
async def test_a_form_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(RestError) as refused:
        await read(FORM[:length], 11)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=e"]
)
async def test_only_a_form_is_taken(content_type: str) -> None:
    with pytest.raises(RestError, match="should be a multipart form"):
        await read(FORM, 100, content_type)


async def test_headers_texts_and_the_number_of_parts_are_bounded() -> None:
    with pytest.raises(RestError, match="without an end of its headers"):
        await read(b"--edge\r\n" + b"x" * (HEAD_BYTES_MAX + 2000), 1000)
    long = b"--edge\r\n\r\n" + b"x" * (TEXT_BYTES_MAX + 1) + b"\r\n--edge--\r\n"
    with pytest.raises(BodyTooLarge):
        await read(long, 10_000)
    with pytest.raises(RestError, match="more than 20 parts"):
        await read(b"--edge\r\n\r\n\r\n" * (PARTS_MAX + 1) + b"--edge--", 1000)
