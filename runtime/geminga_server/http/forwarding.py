"""Forwards HTTP requests to other servers as they come, and their answers back: both are streamed.

Redirects are followed, for clients may not reach where they lead. The first ``replay_bytes_max``
bytes of a request's body are kept until the answer begins, to be sent again to where a redirect
leads.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import h11

from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.errors import ServerSilent, ServerUnreachable
from geminga_server.http.exchange import HttpExchange, Request, exchange
from geminga_server.http.server import Receive, Scope, Send

log = logging.getLogger(__name__)

# What functions workers answer. As upstream's proxy has it: what follows such a word, or a plural's
# s, goes with it.
TO_WORKERS = tuple(
    f"/admin/{version}{word}"
    for version in ("", "v2/", "v3/")
    for word in ("function", "source", "sink", "worker")
)
# As for lookups.
REDIRECTS_MAX = 10
REDIRECTS = frozenset({307, 308})
# Of one connection each (RFC 9110, 7.6.1), or set anew; what a proxy claims of its clients is its
# own to say.
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
    """How long a server may take to connect, and to neither take nor say anything; how much of a
    request's body is kept."""

    connect_timeout_s: float
    silence_timeout_s: float
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
        """Have the first of ``urls`` answer that takes the request; of these there is one."""
        answer, body = Answer(send), RequestBody(receive, self._limits.replay_bytes_max)
        request = forwarded_request(scope)
        try:
            *first, last = urls
            for url in first:
                try:
                    await self._follow(url, request, body, answer)
                except ServerUnreachable as error:
                    if error.is_connected:
                        raise
                else:
                    return
            await self._follow(last, request, body, answer)
        except ServerSilent as error:
            await answer.refuse(504, str(error))
        except ServerUnreachable as error:
            status = 502 if error.is_connected else self._unreachable_status
            await answer.refuse(status, str(error))

    async def _follow(self, url: str, request: Request, body: RequestBody, answer: Answer) -> None:
        """Ask at ``url``, then wherever a redirect leads."""
        for _ in range(REDIRECTS_MAX):
            location = await self._ask(url, request, body, answer)
            if location is None:
                return
            where = urlsplit(urljoin(url + request.target.decode("latin-1"), location))
            if where.scheme != self._scheme or not where.hostname:
                raise ServerUnreachable(f"{url} redirects to {location!r}, which is not followed")
            url = f"{self._scheme}://{where.netloc}"
            target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
            request = Request(request.method, target.encode("latin-1"), request.headers)
        raise ServerUnreachable(f"{REDIRECTS_MAX} servers in a row redirected to the next")

    async def _ask(
        self, url: str, request: Request, body: RequestBody, answer: Answer
    ) -> str | None:
        """Have one server answer; or where it redirects to."""
        limits = self._limits
        async with exchange(
            self._network,
            url,
            connect_timeout_s=limits.connect_timeout_s,
            timeout_s=limits.silence_timeout_s,
        ) as asked:
            await asked.begin(request, urlsplit(url).netloc)
            # Beside the answer, which may come before the body is through: a redirect, a refusal.
            sending = self.spawn(_send_body(asked, body), name="forward a body")
            try:
                head = await asked.head()
                location = location_of(head)
                if location is None:
                    await answer.hand_on(head, asked.body())
            finally:
                sending.cancel()
                await asyncio.wait({sending})  # the body is the next server's
        if location is not None:
            body.rewind()
        return location


class RequestBody:
    """The body of a request, as it comes; what came of it is kept for the next server."""

    def __init__(self, receive: Receive, kept_bytes_max: int) -> None:
        self._receive = receive
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max
        self._is_complete = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it, from its beginning."""
        for piece in list(self._kept or ()):
            yield piece
        while not self._is_complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ServerUnreachable("the client went away")
            self._is_complete = not message.get("more_body", False)
            piece = message.get("body", b"")
            if piece:
                self._keep(piece)
                yield piece

    def _keep(self, piece: bytes) -> None:
        self._kept_bytes += len(piece)
        if self._kept is not None and self._kept_bytes <= self._kept_bytes_max:
            self._kept.append(piece)
        else:
            self._kept = None

    def rewind(self) -> None:
        """It will be sent once more. Raises ``ServerUnreachable`` where too much of it is gone."""
        if self._kept is None:
            raise ServerUnreachable(
                f"a redirect came after {self._kept_bytes} bytes of the body, of which "
                f"{self._kept_bytes_max} are kept: ask again"
            )


class Answer:
    """What the client gets."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = False

    async def hand_on(self, head: h11.Response, pieces: AsyncIterator[bytes]) -> None:
        """A server's answer, as it comes."""
        self._is_begun = True
        await self._send(
            {
                "type": "http.response.start",
                "status": head.status_code,
                "headers": forwarded_headers(head.headers.raw_items()),
            }
        )
        async for piece in pieces:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, status: int, reason: str) -> None:
        """The own answer. Of one that has begun the client is told by its broken end."""
        log.info("request not forwarded", extra={"status": status, "reason": reason})
        if not self._is_begun:
            await refuse(self._send, status, reason)


async def refuse(send: Send, status: int, reason: str) -> None:
    """Answer with a reason, in the form that brokers use."""
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_body(asked: HttpExchange, body: RequestBody) -> None:
    # What is wrong with the connection is found, and told, by who waits for the answer.
    with suppress(OSError, h11.LocalProtocolError, ServerUnreachable):
        await asked.send_body(body.pieces())


def forwarded_request(scope: Scope) -> Request:
    """The request of ``scope`` as it is forwarded."""
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    headers = forwarded_headers(scope["headers"])
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        headers.append(CHUNKED)
    if scope.get("client"):
        headers.append((b"x-forwarded-for", scope["client"][0].encode()))
    return Request(scope["method"].encode(), target, headers)


def forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Those of ``headers`` that go from one side to the other."""
    found = list(headers)
    named = [value for name, value in found if name.lower() == b"connection"]
    left_out = {word.strip().lower() for value in named for word in value.split(b",")}
    return [
        (name, value)
        for name, value in found
        if name.lower() not in NOT_FORWARDED and name.lower() not in left_out
    ]


def location_of(head: h11.Response) -> str | None:
    """Where a redirect to another server leads; None for any other answer."""
    if head.status_code not in REDIRECTS:
        return None
    return next(
        (value.decode("latin-1") for name, value in head.headers if name == b"location"), None
    )
