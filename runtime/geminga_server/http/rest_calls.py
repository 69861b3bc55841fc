"""REST requests from one server to another: bounded in time and size, redirects followed.

They are rare (an operator's request that concerns several brokers), so each takes a connection and
a thread of its own, and Python's own HTTP client does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from geminga_server.errors import ServerStartError, ServerUnreachable

# Operators wait longer than this for an answer.
CALL_TIMEOUT_S = 30.0
# From a broker to the leader, and from there to the chosen broker; then one more, should the bundle
# move at that moment.
REDIRECTS_MAX = 4
# The largest answer is a list of all topics of a namespace: 100,000 of them take 6 MB.
ANSWER_BYTES_MAX = 64 * 1024 * 1024

_REDIRECTS = frozenset((301, 302, 307, 308))


@dataclass(frozen=True, slots=True)
class RestCall:
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    # Seconds for all of it, redirects included; None: as many as ``RestCalls`` gives.
    timeout_s: float | None = None
    # Without this, a redirect is the answer.
    follows_redirects: bool = True


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """The answer to a request."""

    status: int
    body: bytes = b""
    # Where a redirect leads.
    location: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    def json(self) -> object:
        """The body as JSON; None where it is empty or no JSON."""
        try:
            value: object = json.loads(self.body)
        except ValueError:
            return None
        return value

    @property
    def reason(self) -> str:
        """Why a request was refused, in the words of the server that refused it."""
        value = self.json()
        if isinstance(value, dict) and isinstance(value.get("reason"), str):
            return str(value["reason"])
        return f"it answered {self.status}"


class RestCalls(Protocol):
    """Makes requests to other servers; servers make all their requests to each other so."""

    # Whether servers that serve HTTP and HTTPS are asked over HTTPS.
    prefers_tls: bool

    async def call(self, call: RestCall) -> RestAnswer:
        """The answer to one request. Raises ``ServerUnreachable``."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class HttpCalls:
    """``RestCalls`` over HTTP and HTTPS. ``tls`` makes the context of each connection; it is called
    in a thread, so it may read files. By default the system's authorities are trusted."""

    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    prefers_tls: bool = False
    # For calls that have no time-out of their own.
    timeout_s: float = CALL_TIMEOUT_S

    async def call(self, call: RestCall) -> RestAnswer:
        """As ``RestCalls.call``."""
        # The server that is asked now, for errors.
        host = urlsplit(call.url).netloc
        timeout_s = self.timeout_s if call.timeout_s is None else call.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(REDIRECTS_MAX):
                    host = urlsplit(call.url).netloc
                    # Giving up does not end the thread; its own time-out, which is as long, does.
                    answer = await asyncio.to_thread(self._ask, call, timeout_s)
                    # A broker that does not serve the bundle answers with the URL at its owner.
                    is_redirect = answer.status in _REDIRECTS and answer.location is not None
                    if not is_redirect or not call.follows_redirects:
                        return answer
                    # Method, headers and body stay as they were, also after 301 and 302: those are
                    # answers of brokers to each other, not of web sites to browsers.
                    call = replace(call, url=urljoin(call.url, answer.location))
        except TimeoutError:
            raise ServerUnreachable(f"{host} did not answer in {timeout_s:g} s") from None
        except (OSError, ServerStartError) as error:  # the latter: files of TLS cannot be used
            raise ServerUnreachable(f"{host} cannot be reached: {error}") from error
        raise ServerUnreachable(f"{host} redirects on and on: {call.url}")

    def _ask(self, call: RestCall, timeout_s: float) -> RestAnswer:
        import http.client  # noqa: PLC0415  # 20 ms of import time, for what is rare

        url = urlsplit(call.url)
        if url.hostname is None:
            raise OSError(f"no URL with a host: {call.url!r}")
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                url.hostname, url.port, timeout=timeout_s, context=self.tls()
            )
        else:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
        target = f"{url.path}?{url.query}" if url.query else url.path
        try:
            connection.request(call.method, target, call.body or None, dict(call.headers))
            answer = connection.getresponse()
            # One byte more than is allowed tells a longer answer from one that just fits.
            body = answer.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise OSError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            return RestAnswer(answer.status, body, answer.headers.get("Location"))
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP: {error!r}") from error
        finally:
            connection.close()


class BrokerCalls:
    """``RestCalls`` to any broker of a cluster: a request to the first of ``urls`` goes to another
    one where that does not answer. Requests to other servers are passed on as they are."""

    def __init__(self, calls: RestCalls, urls: Sequence[str]) -> None:
        self.prefers_tls = calls.prefers_tls
        self._calls = calls
        # The URL by which callers mean any broker.
        self._named = urls[0]
        # In the order of trying: the one that answered last comes first.
        self._urls = list(urls)

    async def call(self, call: RestCall) -> RestAnswer:
        """As ``RestCalls.call``. Raises ``ServerUnreachable`` where none answers."""
        if not call.url.startswith(f"{self._named}/"):
            return await self._calls.call(call)
        rest = call.url.removeprefix(self._named)
        # A refusal is an answer: only a broker that gives none is followed by the next.
        failure: ServerUnreachable | None = None
        # A copy: another request may reorder the list while this one waits.
        for url in list(self._urls):
            try:
                answer = await self._calls.call(replace(call, url=url + rest))
            except ServerUnreachable as error:
                failure = error
                continue
            # The next request begins with a broker that lives. Others may have reordered the list
            # meanwhile, which still has each URL once.
            self._urls.remove(url)
            self._urls.insert(0, url)
            return answer
        assert failure is not None
        raise failure


class _NoCalls:
    """The calls of a server that reaches no other: a single broker in a test or a simulation."""

    prefers_tls = False

    async def call(self, call: RestCall) -> RestAnswer:
        """Refuse."""
        raise ServerUnreachable(f"this server asks no other: {call.method} {call.url}")


NO_CALLS: RestCalls = _NoCalls()
