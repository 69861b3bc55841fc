"""Routing on the path as it was sent, so that ``%2F`` inside a parameter does not divide it.

An ASGI server hands over the path twice: decoded (``path``) and raw (``raw_path``). Routing on the
decoded one breaks every topic named ``a/b`` apart. This middleware makes the raw one the routed
one; ``parameters.path_value`` decodes each parameter, once, after routing.

It also evens out two habits of HTTP that the web framework leaves open: a slash at the end names
the same resource, and HEAD asks for GET's headers (the server drops the body).
"""

from __future__ import annotations

import json
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send


class RawPath:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on with its raw path; refuse one that decodes to no text."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = _routed_path(scope["raw_path"])
        if path is None:
            await _refuse(send)
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._app({**scope, "path": path, "method": method}, receive, send)


def _routed_path(raw_path: bytes) -> str | None:
    """The raw path as text, without the slash at its end; None if it is not UTF-8 once decoded."""
    path = raw_path.decode("latin-1")
    try:
        unquote(path, encoding="utf-8", errors="strict")
    except UnicodeDecodeError:
        return None
    # The metrics page is the one resource whose name ends with a slash.
    if path != "/metrics/" and len(path) > 1 and path.endswith("/"):
        return path[:-1]
    return path


async def _refuse(send: Send) -> None:
    body = json.dumps({"reason": "The path is not valid UTF-8 after percent-decoding"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
