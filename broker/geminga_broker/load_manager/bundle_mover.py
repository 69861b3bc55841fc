"""Asking the owner of a bundle to hand it on or to split it, as ``pulsar-admin`` would: over REST.

The leader asks the owner itself, whichever of Geminga's or Apache's brokers that is, and does not
follow redirects: an answer that leads elsewhere says that the bundle has moved meanwhile, and the
next decision sees that.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Protocol
from urllib.parse import urlencode, urlsplit

from geminga_broker.errors import BrokerError
from geminga_runtime.network import Network

# Answers are a line of reasons at most; what is longer is cut off.
ANSWER_BYTES_MAX = 64 * 1024


class BundleRequestFailed(BrokerError):
    """The owner of a bundle did not do what the load manager asked for."""

    code: ClassVar[str] = "ServiceNotReady"
    retry: ClassVar[bool] = True

    def __init__(self, request: str, why: str) -> None:
        super().__init__(f"{request} failed: {why}")
        self.request = request
        self.why = why


class BundleMover(Protocol):
    """What the load manager has owners do. Bundles are named ``tenant/namespace/0x…_0x…``, brokers
    by the URL of their REST side or by their id. All raise ``BundleRequestFailed``."""

    async def unload(self, owner_url: str, bundle: str, destination: str) -> None:
        """Return when the owner has handed the bundle on to the broker ``destination``."""
        ...

    async def split(self, owner_url: str, bundle: str, *, unload: bool) -> None:
        """Return when the owner has split the bundle, and with ``unload`` given up its halves."""
        ...


class RestBundleMover:
    """Implements ``BundleMover`` by requests of REST, each on a connection of its own: there are
    some tens a minute."""

    def __init__(self, network: Network, *, timeout_s: float) -> None:
        self._network = network
        self._timeout_s = timeout_s

    async def unload(self, owner_url: str, bundle: str, destination: str) -> None:
        """As ``BundleMover.unload``."""
        query = {"authoritative": "false", "destinationBroker": destination}
        await self._put(owner_url, bundle, "unload", query)

    async def split(self, owner_url: str, bundle: str, *, unload: bool) -> None:
        """As ``BundleMover.split``."""
        query = {"authoritative": "false", "unload": str(unload).lower()}
        await self._put(owner_url, bundle, "split", query)

    async def _put(self, url: str, bundle: str, action: str, query: dict[str, str]) -> None:
        path = f"/admin/v2/namespaces/{bundle}/{action}?{urlencode(query)}"
        request = f"PUT {path}"
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._exchange(url, request)
        except TimeoutError:
            raise BundleRequestFailed(
                request, f"{url} did not answer in {self._timeout_s:g} s"
            ) from None
        except OSError as error:
            raise BundleRequestFailed(request, f"{url} cannot be reached: {error}") from error
        status, _, body = answer.partition(b"\r\n\r\n")
        code = status[:16].split(b" ")[1:2]
        if not code or not code[0].startswith(b"2"):
            said = (status.partition(b"\r\n")[0] + b" " + body).decode("utf-8", "replace")
            raise BundleRequestFailed(request, f"{url} answered {said.strip()!r}")

    async def _exchange(self, url: str, request: str) -> bytes:
        """The whole answer to one request without a body."""
        parts = urlsplit(url)
        # TLS between brokers comes with the broker's own TLS settings.
        if parts.scheme != "http" or parts.hostname is None:
            raise OSError(f"not an http URL: {url!r}")
        loop = asyncio.get_running_loop()
        transport, answer = await self._network.connect(
            lambda: _Answer(loop.create_future()), parts.hostname, parts.port or 80
        )
        try:
            head = f"{request} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 0\r\n"
            transport.write(f"{head}Connection: close\r\n\r\n".encode())
            return await answer.whole
        finally:
            transport.abort()


class _Answer(asyncio.Protocol):
    """Collects bytes until the other side closes, or has sent more than answers have."""

    def __init__(self, whole: asyncio.Future[bytes]) -> None:
        self.whole = whole
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > ANSWER_BYTES_MAX and not self.whole.done():
            self.whole.set_result(bytes(self._received[:ANSWER_BYTES_MAX]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.whole.done():
            return
        if exc is not None:
            self.whole.set_exception(exc)
        else:
            self.whole.set_result(bytes(self._received))
