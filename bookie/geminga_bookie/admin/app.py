"""The ASGI application of a bookie's admin: authorizes requests, has them answered, sends answers.

Requests for other paths go on to the application of metrics and health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus

from geminga_bookie.admin.access import AdminAccess
from geminga_bookie.admin.documents.messages import (
    Answer,
    Refused,
    Request,
    parse_parameters,
    text_answer,
)
from geminga_bookie.admin.routes import METHODS, REFUSES_METHODS, ROUTES, Route
from geminga_ledger import NoSuchEntry, NoSuchLedger
from geminga_runtime.errors import GemingaError
from geminga_server.authorization import ANONYMOUS, Action, Authorize, Resource, allow_all
from geminga_server.errors import NotAuthorized
from geminga_server.http import server
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

# The endpoints have deadlines of their own, all of them shorter.
ANSWER_TIMEOUT_S = 60.0
# The largest body that any of them takes is a name.
BODY_BYTES_MAX = 64 * 1024
BODY_TIMEOUT_S = 10.0
# Probes and load balancers ask for these every few seconds.
ROUTINE_PATHS = server.ROUTINE_PATHS | {"/heartbeat", "/api/v1/bookie/is_ready"}
# Paths of the admin begin with one of these.
PREFIXES = (b"/api/", b"/heartbeat")


@dataclass(frozen=True, slots=True, eq=False)
class BookieAdmin:
    """Answers the admin's paths with ``access``, and leaves all others to ``other``."""

    access: AdminAccess
    other: AsgiApp
    # What a client needs a right to.
    resource: Resource
    authorize: Authorize = allow_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # Paths are compared as they came: none of ours has a character that is ever escaped.
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        # Without empty segments, as upstream's server takes a path.
        path = b"/" + b"/".join(filter(None, raw_path.split(b"/")))
        if not path.startswith(PREFIXES):
            await self.other(scope, receive, send)
            return
        # A HEAD is a GET whose body is left out at the end: status and headers are the same.
        is_head = scope["method"] == "HEAD"
        method = "GET" if is_head else scope["method"]
        answer = await self._answer(scope, receive, path.decode("latin-1"), method)
        body = answer.body
        headers = [(b"content-type", answer.content_type.encode())]
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
        start = {"type": "http.response.start", "status": int(answer.status), "headers": headers}
        await send(start)
        if isinstance(body, bytes):
            await send({"type": "http.response.body", "body": b"" if is_head else body})
            return
        # An error in the middle of a long body is raised to the server, which breaks off the
        # connection: the client sees that the body is incomplete.
        async with aclosing(body):
            if not is_head:
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _answer(self, scope: Scope, receive: Receive, path: str, method: str) -> Answer:
        """Have the endpoint make the answer; make one of every error."""
        try:
            principal = scope.get("state", {}).get("principal") or ANONYMOUS
            # Asked before the path is looked at: which paths there are is nothing for strangers.
            await self.authorize(principal, Action.READ, self.resource)
            route = _route(path, method)
            if route.action is not Action.READ:
                await self.authorize(principal, route.action, self.resource)
            parameters = parse_parameters(scope.get("query_string", b""))
            # A client that sends its body slowly must not keep an endpoint waiting.
            async with asyncio.timeout(BODY_TIMEOUT_S):
                request = Request(method, parameters, await _read_body(receive))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await route.endpoint(self.access, request)
                if isinstance(answer.body, bytes):
                    return answer
                # The first piece is made before the status is sent: what fails early fails with the
                # status of its error.
                first = await anext(answer.body, b"")
                return Answer(answer.status, answer.content_type, _again(first, answer.body))
        # The errors become answers here alone, by what clients can do about them.
        except Refused as error:
            return text_answer(error.reason, error.status)
        except GemingaError as error:
            if isinstance(error, NotAuthorized):
                status = HTTPStatus.FORBIDDEN
            elif isinstance(error, NoSuchLedger | NoSuchEntry):
                status = HTTPStatus.NOT_FOUND
            elif error.retry:
                status = HTTPStatus.SERVICE_UNAVAILABLE
            else:
                status = HTTPStatus.INTERNAL_SERVER_ERROR
            return text_answer(str(error), status)
        except TimeoutError:
            return text_answer("it took too long", HTTPStatus.GATEWAY_TIMEOUT)
        except OSError as error:
            return text_answer(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)


def _route(path: str, method: str) -> Route:
    """Find the endpoint. Raises ``Refused``, with upstream's status where the method is another."""
    methods = ROUTES.get(path)
    if methods is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"nothing at {path}")
    if method not in methods:
        words = f"Not found method. Should be {' or '.join(methods)} method"
        is_refused = method not in METHODS or path in REFUSES_METHODS
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED if is_refused else HTTPStatus.NOT_FOUND, words)
    return methods[method]


async def _read_body(receive: Receive) -> bytes:
    """Read the whole body. Raises ``Refused`` for one that is too long."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > BODY_BYTES_MAX:
            words = f"a body of more than {BODY_BYTES_MAX} bytes"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        if not message.get("more_body", False):
            return body


async def _again(first: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield ``first``, then the pieces behind it."""
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece
