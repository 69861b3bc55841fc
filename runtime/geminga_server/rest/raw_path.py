"""Routing on the path as it was sent, so that ``%2F`` inside a parameter does not divide it.

An ASGI server passes the path twice: decoded (``path``) and raw (``raw_path``). Routing on the
decoded one breaks every topic named ``a/b`` apart. This middleware routes on the raw one;
``parameters.path_value`` decodes each parameter, once, after routing.

It also does two things that the web framework leaves open: a slash at the end names the same
resource, and HEAD is answered as GET (the server drops the body).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class RawPath:
    """ASGI middleware around the whole application."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its raw path; refuse a path that does not decode to text."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1")
        try:
            unquote(path, encoding="utf-8", errors="strict")
        except UnicodeDecodeError:
            # Names of topics and namespaces are text. ``path_value`` would replace other bytes, and
            # two different names could become one.
            reason = "The path is not valid UTF-8 after percent-decoding"
            body = json.dumps({"reason": reason}).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        # The metrics page is the one resource whose name ends with a slash.
        if path != "/metrics/" and len(path) > 1 and path.endswith("/"):
            path = path[:-1]
        # Routes name GET alone.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        # A copy: the middleware around this one logs method and path as the client sent them.
        await self.app({**scope, "path": path, "method": method}, receive, send)
