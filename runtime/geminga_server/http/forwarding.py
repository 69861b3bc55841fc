"""Forwards HTTP requests to other servers, and their answers back; both are streamed.

Redirects are followed, because clients may not reach the servers that they lead to. The first
``replay_bytes_max`` bytes of a request's body are kept until the answer begins, to be sent again
after a redirect.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

import h11

from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.errors import ServerSilent, ServerUnreachable
from geminga_server.http.exchange import Request, exchange
from geminga_server.http.server import Receive, Scope, Send

log = logging.getLogger(__name__)

# Prefixes of the paths that functions workers answer. They match as in upstream's proxy, as text:
# ``functions`` begins with ``function``.
TO_WORKERS = tuple(
    f"/admin/{version}{word}"
    for version in ("", "v2/", "v3/")
    for word in ("function", "source", "sink", "worker")
)
# As many as lookups follow.
REDIRECTS_MAX = 10
REDIRECTS = frozenset({307, 308})
# Headers of one connection only (RFC 9110, 7.6.1), those that are set anew, and those by which a
# proxy names the client: a client must not set them itself.
NOT_FORWARDED = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection", b"host"),
        *(b"date", b"expect", b"x-forwarded-for", b"x-original-principal"),
    )
)
CHUNKED = (b"transfer-encoding", b"chunked")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingLimits:
    """Bounds of one forwarded request."""

    connect_timeout_s: float
    # How long a server may neither read nor send anything.
    silence_timeout_s: float
    # How much of a request's body is kept for a redirect.
    replay_bytes_max: int


class Forwarder(Service):
    """Forwards over ``network``, which secures connections where ``scheme`` is ``https``."""

    def __init__(
        self,
        network: Network,
        limits: ForwardingLimits,
        *,
        scheme: str = "http",
        unreachable_status: int = 502,
    ) -> None:
        """``unreachable_status`` is answered where no server takes the request."""
        super().__init__()
        self._unreachable_status = unreachable_status
        self._network = network
        self._limits = limits
        self._scheme = scheme

    async def forward(
        self, scope: Scope, receive: Receive, send: Send, urls: Sequence[str]
    ) -> None:
        """Have the first of ``urls`` answer that accepts a connection; there is at least one."""
        # One body for all servers that are asked: what one of them took is kept for the next
        # (``rewind``).
        answer, body = Answer(send), RequestBody(receive, self._limits.replay_bytes_max)
        request = forwarded_request(scope)
        try:
            # The last one is tried outside of the loop: its refusal is the answer.
            *first, last = urls
            for url in first:
                try:
                    await self._follow(url, request, body, answer)
                except ServerUnreachable as error:
                    # A server that was connected may have carried the request out: asking another
                    # one could do it twice.
                    if error.is_connected:
                        raise
                else:
                    return
            await self._follow(last, request, body, answer)
        except ServerSilent as error:
            # A server that said nothing may have carried the request out: no other one is asked.
            await answer.refuse(504, str(error))
        except ServerUnreachable as error:
            status = 502 if error.is_connected else self._unreachable_status
            await answer.refuse(status, str(error))

    async def _follow(self, url: str, request: Request, body: RequestBody, answer: Answer) -> None:
        """Ask the server at ``url``, then those that redirects lead to."""
        limits = self._limits
        # Each turn asks one server, over a connection that ends with the turn.
        for _ in range(REDIRECTS_MAX):
            async with exchange(
                self._network,
                url,
                connect_timeout_s=limits.connect_timeout_s,
                timeout_s=limits.silence_timeout_s,
            ) as asked:
                await asked.begin(request, urlsplit(url).netloc)
                # In a task of its own: an answer, such as a redirect or a refusal, may come before
                # the server has taken all of the body.
                sending = self.spawn(asked.send_body(body.pieces()), name="forward a body")
                try:
                    head = await asked.head()
                    # The body of a redirect is not wanted: its connection ends unread.
                    location = location_of(head)
                    if location is None:
                        await answer.hand_on(head, asked.body())
                finally:
                    sending.cancel()
                    # Two tasks must not read the body at once: the next server gets it only now.
                    await asyncio.wait({sending})
            if location is None:
                return
            # Raises where too much of the body is gone. Nothing has been answered yet, so the
            # client is told.
            body.rewind()
            # A location may be relative to the URL that was asked for (RFC 9110, 10.2.2). Its
            # scheme must be the same: ``network`` secures all connections or none.
            where = urlsplit(urljoin(url + request.target.decode("latin-1"), location))
            if where.scheme != self._scheme or not where.hostname:
                raise ServerUnreachable(f"{url} redirects to {location!r}, which is not followed")
            url = f"{self._scheme}://{where.netloc}"
            target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
            request = Request(request.method, target.encode("latin-1"), request.headers)
        raise ServerUnreachable(f"{REDIRECTS_MAX} servers in a row redirected to the next")


@dataclass(slots=True, eq=False)
class RequestBody:
    """The body of a request, as it arrives; its beginning is kept for another server."""

    receive: Receive
    kept_bytes_max: int
    # What has arrived; None once it was more than may be kept.
    kept: list[bytes] | None = field(default_factory=list[bytes])
    # Bytes that have arrived, also once they are not kept any more.
    arrived_bytes: int = 0
    is_complete: bool = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """The whole body, from its beginning."""
        # First what an earlier server was sent. A copy, since the list grows below.
        for piece in list(self.kept or ()):
            yield piece
        while not self.is_complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ServerUnreachable("the client went away")
            self.is_complete = not message.get("more_body", False)
            piece = message.get("body", b"")
            if piece:
                # Kept before it is given out: the sending may be cancelled at the ``yield``, and
                # the next server must get this piece, too.
                self.arrived_bytes += len(piece)
                if self.kept is not None and self.arrived_bytes <= self.kept_bytes_max:
                    self.kept.append(piece)
                else:
                    # From here on the body can only be sent once; the pieces are let go.
                    self.kept = None
                yield piece

    def rewind(self) -> None:
        """The body will be sent again. Raises ``ServerUnreachable`` where it was not all kept."""
        if self.kept is None:
            raise ServerUnreachable(
                f"a redirect came after {self.arrived_bytes} bytes of the body, of which "
                f"{self.kept_bytes_max} are kept: ask again"
            )


@dataclass(slots=True, eq=False)
class Answer:
    """The answer that the client gets."""

    send: Send
    # Its head was sent: it can no longer become another one.
    is_begun: bool = False

    async def hand_on(self, head: h11.Response, pieces: AsyncIterator[bytes]) -> None:
        """Pass a server's answer on, as it arrives."""
        # Before the head is sent: should that fail half way, no second head may follow.
        self.is_begun = True
        await self.send(
            {
                "type": "http.response.start",
                "status": head.status_code,
                # Without Content-Length, uvicorn cuts the body into chunks of its own.
                "headers": forwarded_headers(head.headers.raw_items()),
            }
        )
        async for piece in pieces:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with an error of our own. An answer that has begun ends without its last piece,
        which shows the client that it is broken."""
        # uvicorn closes the connection of an answer that its application leaves unfinished.
        log.info("request not forwarded", extra={"status": status, "reason": reason})
        if not self.is_begun:
            await refuse(self.send, status, reason)


async def refuse(send: Send, status: int, reason: str) -> None:
    """Answer with a status and a reason, in the form that brokers use."""
    # As ``geminga_server.rest.answers`` does, which would import the web framework.
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def forwarded_request(scope: Scope) -> Request:
    """The head of the request in ``scope`` as it is forwarded."""
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    # Content-Length stays among them, and frames the body. A request with neither header has no
    # body.
    headers = forwarded_headers(scope["headers"])
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        # It was left out as a header of one connection; the new connection frames the body itself.
        headers.append(CHUNKED)
    if scope.get("client"):
        headers.append((b"x-forwarded-for", scope["client"][0].encode()))
    return Request(scope["method"].encode(), target, headers)


def forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on, in either direction."""
    found = list(headers)
    # A Connection header names further headers that concern this connection alone.
    named = [value for name, value in found if name.lower() == b"connection"]
    left_out = {word.strip().lower() for value in named for word in value.split(b",")}
    return [
        (name, value)
        for name, value in found
        if name.lower() not in NOT_FORWARDED and name.lower() not in left_out
    ]


def location_of(head: h11.Response) -> str | None:
    """Where a redirect leads; None for any other answer."""
    if head.status_code not in REDIRECTS:
        return None
    return next(
        (value.decode("latin-1") for name, value in head.headers if name == b"location"), None
    )
