"""Requests as the endpoints see them, and their answers. Pure.

HTTP itself is the business of ``admin.app``. What is wrong with a request is raised as ``Refused``,
with the status and words of the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"
# No endpoint has as many: a request with more means something else.
PARAMETERS_MAX = 32

_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_I64_MAX = (1 << 63) - 1


class Refused(Exception):
    """The request cannot be served as it is. ``app`` makes an answer of it."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Request:
    """One request to an endpoint."""

    method: str
    # From the query; of two with one name the last counts.
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def integer(self, name: str, default: int | None = None) -> int:
        """The parameter as a number. Raises ``Refused`` where it is no number, or missing."""
        # That a parameter is missing is 404 to upstream.
        words = self.parameters.get(name)
        if words is None:
            if default is not None:
                return default
            raise Refused(HTTPStatus.NOT_FOUND, f"parameter {name}=<number> is missing")
        # The pattern first: ``int`` also takes spaces, underscores and the digits of other scripts.
        if not _INTEGER.fullmatch(words) or abs(int(words)) > _I64_MAX:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{name}={words!r} is no number")
        return int(words)

    def is_set(self, name: str) -> bool:
        """Whether the parameter is ``true``."""
        return self.parameters.get(name) == "true"

    def fields(self) -> dict[str, object]:
        """The body, a JSON object. Raises ``Refused``."""
        try:
            content: object = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from error
        if not isinstance(content, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        return {str(name): value for name, value in content.items()}


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answers."""

    status: int
    content_type: str
    # A long body comes in pieces, so that it is never in memory as a whole.
    body: bytes | AsyncGenerator[bytes, None]


def parse_parameters(query: bytes) -> dict[str, str]:
    """Decode a query string. Raises ``Refused``."""
    try:
        pairs = parse_qsl(
            query.decode("latin-1"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX
        )
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the query cannot be read: {error}") from error
    return dict(pairs)


def json_answer(content: object) -> Answer:
    """An answer of a JSON value, with line breaks and indents, as upstream has them."""
    return Answer(HTTPStatus.OK, JSON_TYPE, json.dumps(content, indent=2).encode())


def text_answer(words: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer of plain text."""
    return Answer(status, TEXT_TYPE, words.encode())


async def json_object(members: AsyncIterator[tuple[str, object]]) -> AsyncGenerator[bytes, None]:
    """Encode a JSON object, member by member, as its members come."""
    # What separates a member from the one before it.
    start = "{\n"
    async for name, value in members:
        text = json.dumps(value, indent=2).replace("\n", "\n  ")
        yield f"{start}  {json.dumps(name)}: {text}".encode()
        start = ",\n"
    yield b"{}" if start == "{\n" else b"\n}"
