"""The ASGI application of a bookie's admin: takes requests in, asks ``authorize``, sends answers.

Everything that is no path of the admin goes to the part's own application (metrics and health).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.messages import (
    Answer,
    Refused,
    Request,
    parse_parameters,
    text_answer,
)
from geminga_bookie.admin.routes import METHODS, REFUSES_METHODS, ROUTES, Route
from geminga_ledger import NoSuchEntry, NoSuchLedger
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import ALLOW_ALL, ANONYMOUS, Action, Authorizer, Resource
from geminga_server.errors import NotAuthorized
from geminga_server.http import server
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

# What the endpoints do has deadlines of its own, all of them shorter.
ANSWER_TIMEOUT_S = 60.0
# The largest body that any of them takes is a name.
BODY_BYTES_MAX = 64 * 1024
BODY_TIMEOUT_S = 10.0
# Asked every few seconds by whatever watches over bookies.
ROUTINE_PATHS = server.ROUTINE_PATHS | {"/heartbeat", "/api/v1/bookie/is_ready"}
# Paths of the admin begin with one of these.
PREFIXES = (b"/api/", b"/heartbeat")


class BookieAdmin:
    """Answers the admin's paths with ``access``, and leaves all others to ``other``."""

    def __init__(
        self,
        access: AdminAccess,
        other: AsgiApp,
        *,
        resource: Resource,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = access
        self._other = other
        self._resource = resource
        self._authorizer = authorizer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        path = _plain(raw_path)
        if not path.startswith(PREFIXES):
            await self._other(scope, receive, send)
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = await self._answer(scope, receive, path.decode("latin-1"), method)
        await _send_answer(send, answer, is_head=scope["method"] == "HEAD")

    async def _answer(self, scope: Scope, receive: Receive, path: str, method: str) -> Answer:
        try:
            principal = scope.get("state", {}).get("principal") or ANONYMOUS
            await self._authorizer.authorize(principal, Action.READ, self._resource)
            route = _route(path, method)
            if route.action is not Action.READ:
                await self._authorizer.authorize(principal, route.action, self._resource)
            parameters = parse_parameters(scope.get("query_string", b""))
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await _body(receive)
            request = Request(method, parameters, body)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await _begun(await route.endpoint(self._access, request))
        except Refused as error:
            return text_answer(error.reason, error.status)
        except GemingaError as error:
            return text_answer(str(error), _status_of(error))
        except TimeoutError:
            return text_answer("it took too long", HTTPStatus.GATEWAY_TIMEOUT)
        except OSError as error:
            return text_answer(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(raw_path: bytes) -> bytes:
    """Without the slashes that say nothing, as upstream's server takes a path."""
    return b"/" + b"/".join(filter(None, raw_path.split(b"/")))


def _route(path: str, method: str) -> Route:
    """Who answers. Raises ``Refused``, with upstream's status where the method is another."""
    methods = ROUTES.get(path)
    if methods is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"nothing at {path}")
    if method not in methods:
        words = f"Not found method. Should be {' or '.join(methods)} method"
        is_refused = method not in METHODS or path in REFUSES_METHODS
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED if is_refused else HTTPStatus.NOT_FOUND, words)
    return methods[method]


def _status_of(error: GemingaError) -> HTTPStatus:
    if isinstance(error, NotAuthorized):
        return HTTPStatus.FORBIDDEN
    if isinstance(error, NoSuchLedger | NoSuchEntry):
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.SERVICE_UNAVAILABLE if error.retry else HTTPStatus.INTERNAL_SERVER_ERROR


async def _body(receive: Receive) -> bytes:
    """The whole body. Raises ``Refused`` for one that is too long."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > BODY_BYTES_MAX:
            words = f"a body of more than {BODY_BYTES_MAX} bytes"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        if not message.get("more_body", False):
            return body


async def _begun(answer: Answer) -> Answer:
    """The answer with the first piece of its body at hand: what fails early fails with a status."""
    if isinstance(answer.body, bytes):
        return answer
    first = await anext(answer.body, b"")
    return Answer(answer.status, answer.content_type, _again(first, answer.body))


async def _again(first: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


async def _send_answer(send: Send, answer: Answer, *, is_head: bool) -> None:
    """Send it; what fails in the middle of a long one breaks the connection off."""
    body = answer.body
    headers = [(b"content-type", answer.content_type.encode())]
    if isinstance(body, bytes):
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": b"" if is_head else body})
        return
    async with aclosing(body):
        if not is_head:
            async for piece in body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
