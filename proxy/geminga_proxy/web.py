"""REST through the proxy: ``/admin`` and ``/lookup`` are forwarded to brokers, those of functions
to their workers; ``/metrics`` and ``/health`` are the proxy's own.

Any broker answers any request, or redirects to the one that does. Clients cannot reach that one, so
the proxy follows redirects. Bodies are streamed; the first ``replay_bytes_max`` bytes of a
request's body are kept until the answer begins, to be sent again to where a redirect leads.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from urllib.parse import urljoin, urlsplit

import h11

from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig, WebConfig
from geminga_proxy.errors import BrokerSilent, BrokerUnreachable, NoBroker
from geminga_proxy.http_exchange import HttpExchange, Request, exchange
from geminga_runtime.network import Network
from geminga_runtime.service import Service
from geminga_server.http import AsgiApp, Receive, Scope, Send

log = logging.getLogger(__name__)

FORWARDED = ("/admin", "/lookup")
# As upstream's proxy; what follows such a word, or a plural's s, goes with it.
TO_WORKERS = tuple(
    f"/admin/{rest}"
    for version in ("", "v2/", "v3/")
    for rest in (f"{version}function", f"{version}source", f"{version}sink", f"{version}worker")
)
# As for lookups.
REDIRECTS_MAX = 10
BROKERS_TRIED_MAX = 5
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


class Forwarding(Service):
    """An ASGI application that forwards; what it does not forward is ``own``'s to answer."""

    def __init__(
        self, own: AsgiApp, brokers: Brokers, network: Network, config: ProxyConfig
    ) -> None:
        super().__init__()
        self._own = own
        self._brokers = brokers
        self._network = network
        self._config = config.web
        self._connect_timeout_s = config.targets.broker_proxy_connect_timeout_s
        self._worker_urls = config.worker_web_urls
        self._scheme = "https" if config.broker_tls.enabled else "http"
        self._turn = 0
        self._open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if not path.startswith(FORWARDED):
            await self._own(scope, receive, send)
            return
        if self._open_requests >= self._config.concurrent_http_requests_max:
            await refuse(send, 503, "too many requests are being forwarded: try again")
            return
        self._open_requests += 1
        try:
            await self._forward(scope, RequestBody(receive, self._config), Answer(send))
        finally:
            self._open_requests -= 1

    async def _forward(self, scope: Scope, body: RequestBody, answer: Answer) -> None:
        request = forwarded_request(scope)
        try:
            *urls, last = self._urls_for(scope["path"])[:BROKERS_TRIED_MAX]
            for url in urls:
                try:
                    await self._follow(url, request, body, answer)
                except BrokerUnreachable as error:
                    if error.is_connected:
                        raise
                else:
                    return
            await self._follow(last, request, body, answer)
        except NoBroker as error:
            await answer.refuse(503, str(error))
        except BrokerSilent as error:
            await answer.refuse(504, str(error))
        except BrokerUnreachable as error:
            await answer.refuse(502, str(error))

    def _urls_for(self, path: str) -> list[str]:
        """Whom to ask, in this order: those that are one another's like take turns."""
        urls = self._brokers.view.web_urls
        if self._worker_urls and path.startswith(TO_WORKERS):
            urls = self._worker_urls
        if not urls:
            raise NoBroker("no broker is there that answers REST")
        self._turn = (self._turn + 1) % len(urls)
        return [*urls[self._turn :], *urls[: self._turn]]

    async def _follow(self, url: str, request: Request, body: RequestBody, answer: Answer) -> None:
        """Ask at ``url``, then wherever a redirect leads."""
        for _ in range(REDIRECTS_MAX):
            location = await self._ask(url, request, body, answer)
            if location is None:
                return
            where = urlsplit(urljoin(url + request.target.decode("latin-1"), location))
            if where.scheme != self._scheme or not where.hostname:
                raise BrokerUnreachable(f"{url} redirects to {location!r}, which is not followed")
            url = f"{self._scheme}://{where.netloc}"
            target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
            request = Request(request.method, target.encode("latin-1"), request.headers)
        raise BrokerUnreachable(f"{REDIRECTS_MAX} brokers in a row redirected to the next")

    async def _ask(
        self, url: str, request: Request, body: RequestBody, answer: Answer
    ) -> str | None:
        """Have one broker answer; or where it redirects to."""
        config = self._config
        async with exchange(
            self._network,
            url,
            connect_timeout_s=self._connect_timeout_s,
            timeout_s=config.http_proxy_timeout_s,
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
                await asyncio.wait({sending})  # the body is the next broker's
        if location is not None:
            body.rewind()
        return location


class RequestBody:
    """The body of a request, as it comes; what came of it is kept for the next broker."""

    def __init__(self, receive: Receive, config: WebConfig) -> None:
        self._receive = receive
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._kept_bytes_max = config.http_input_replay_bytes_max
        self._is_complete = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it, from its beginning."""
        for piece in list(self._kept or ()):
            yield piece
        while not self._is_complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise BrokerUnreachable("the client went away")
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
        """It will be sent once more. Raises ``BrokerUnreachable`` where too much of it is gone."""
        if self._kept is None:
            raise BrokerUnreachable(
                f"a redirect came after {self._kept_bytes} bytes of the body, of which "
                f"{self._kept_bytes_max} are kept: ask again"
            )


class Answer:
    """What the client gets."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = False

    async def hand_on(self, head: h11.Response, pieces: AsyncIterator[bytes]) -> None:
        """A broker's answer, as it comes."""
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
        """The proxy's own answer. Of one that has begun the client is told by its broken end."""
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
    with suppress(OSError, h11.LocalProtocolError, BrokerUnreachable):
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
    """Where a redirect to another broker leads; None for any other answer."""
    if head.status_code not in REDIRECTS:
        return None
    return next(
        (value.decode("latin-1") for name, value in head.headers if name == b"location"), None
    )
