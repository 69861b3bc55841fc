"""HTTP requests by Python's own ``http.client``, each in a thread: requests are rare.

The thread of a request that was cancelled or timed out ends later, when its socket times out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from geminga.errors import ClientError, NotConnected
from geminga.tls import Tls, handshake_failed

# The largest answer is a list of all topics of a namespace: 100,000 of them take 6 MB.
ANSWER_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: GET, or POST of a form."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    # The form, percent-encoded. Not in the ``repr``: it may hold a secret.
    body: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request, of whatever status."""

    status: int
    # Where a redirect leads.
    location: str | None
    body: bytes


async def fetch(request: HttpRequest, tls: Tls, timeout_s: float) -> HttpAnswer:
    """Send one request and return its answer. Redirects are not followed.

    Raises ``NotConnected``, ``TlsFailed``, or ``ClientError`` for more than ``ANSWER_BYTES_MAX``.
    """
    host = urlsplit(request.url).netloc
    try:
        async with asyncio.timeout(timeout_s):
            # Two timeouts: that of the block ends the wait, that of the socket ends the thread.
            return await asyncio.to_thread(_fetch, request, tls, timeout_s)
    except TimeoutError:
        raise NotConnected(f"{host} did not answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise handshake_failed(host, error) from error
    except OSError as error:
        raise NotConnected(f"{host} cannot be reached: {error}") from error


def _fetch(request: HttpRequest, tls: Tls, timeout_s: float) -> HttpAnswer:
    import http.client  # noqa: PLC0415  # 20 ms of import time, for the few who need it

    url = urlsplit(request.url)
    host = url.hostname or ""
    # The socket's timeout is for each read: a server that sends a byte now and then can keep the
    # thread for longer, but not the caller.
    if url.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, url.port, timeout=timeout_s, context=tls.context()
        )
    else:
        connection = http.client.HTTPConnection(host, url.port, timeout=timeout_s)
    headers = dict(request.headers)
    if request.body is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    try:
        method = "GET" if request.body is None else "POST"
        connection.request(method, target, request.body, headers)
        answer = connection.getresponse()
        # One byte more than allowed shows that there are too many, without reading all of them.
        body = answer.read(ANSWER_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise NotConnected(f"{url.netloc} does not answer in HTTP: {error!r}") from error
    finally:
        # No connection is kept: lookups over HTTP are rare, and the next one may go to another
        # broker.
        connection.close()
    if len(body) > ANSWER_BYTES_MAX:
        raise ClientError(f"{url.netloc} answered with more than {ANSWER_BYTES_MAX} bytes")
    return HttpAnswer(answer.status, answer.headers.get("Location"), body)
