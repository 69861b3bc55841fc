"""What a broker has others do with bundles, over REST: acquire one, give one up, cut one in two.

These are requests that any broker answers, of Apache's too; how they ended is told, and what is to
be done then is decided by the caller.
"""

from __future__ import annotations

import zlib
from urllib.parse import quote

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.address import Owner
from geminga_broker.ownership.bundles import Bundle
from geminga_server.rest_calls import RestCall, RestCalls

# A name in a given bundle is found by trying: of the largest ring (4,096 bundles) one in 4,096 is,
# and so many take a hundredth of a second.
NAMES_TRIED_MAX = 40_000


class BundleCalls:
    """Asks brokers through ``calls``."""

    def __init__(self, calls: RestCalls) -> None:
        self._calls = calls

    async def assign(self, bundle: Bundle, asked: Owner) -> None:
        """Have the broker ``asked`` acquire a bundle, or choose which one shall: it is looked up
        there, as a client would. Raises ``ServerUnreachable``, ``ServiceNotReady``."""
        name = name_in(bundle)
        word = "true" if asked.is_authoritative else "false"
        path = f"/lookup/v2/topic/persistent/{bundle.namespace}/{quote(name, safe='')}"
        await self._ask("GET", asked, f"{path}?authoritative={word}")

    async def unload(self, bundle: Bundle, asked: Owner, destination: str | None = None) -> None:
        """Have a bundle unloaded, to the broker of the id ``destination`` or any. Raises as
        ``assign`` does."""
        path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.name}/unload"
        query = "" if destination is None else f"?destinationBroker={quote(destination, safe='')}"
        await self._ask("PUT", asked, path + query)

    async def split(self, bundle: Bundle, asked: Owner, *, algorithm: str, unload: bool) -> None:
        """Have a bundle cut in two. Raises as ``assign`` does."""
        path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.name}/split"
        word = "true" if unload else "false"
        await self._ask("PUT", asked, f"{path}?unload={word}&splitAlgorithmName={algorithm}")

    async def _ask(self, method: str, asked: Owner, target: str) -> None:
        url = f"{asked.http_url or asked.http_url_tls}{target}"
        answer = await self._calls.call(RestCall(method, url))
        if not answer.is_success:
            raise ServiceNotReady(f"{method} {url}: {answer.reason}")


def name_in(bundle: Bundle) -> str:
    """The local name of a topic that would fall into ``bundle``, and need not exist. Raises
    ``ServiceNotReady`` for a bundle so small that none is found."""
    begin = zlib.crc32(f"persistent://{bundle.namespace}/__bundle-".encode())
    for number in range(NAMES_TRIED_MAX):
        if bundle.covers(zlib.crc32(str(number).encode(), begin)):
            return f"__bundle-{number}"
    raise ServiceNotReady(f"no name of a topic in {bundle} was found")
