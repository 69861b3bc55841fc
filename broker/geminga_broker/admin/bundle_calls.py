"""How a broker has another acquire a bundle, over REST: by the lookup of a topic in it, which any
broker answers, of Apache's too."""

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
        path = f"/lookup/v2/topic/persistent/{bundle.namespace}/{quote(name_in(bundle), safe='')}"
        word = "true" if asked.is_authoritative else "false"
        url = f"{asked.http_url or asked.http_url_tls}{path}?authoritative={word}"
        answer = await self._calls.call(RestCall("GET", url))
        if not answer.is_success:
            raise ServiceNotReady(f"GET {url}: {answer.reason}")


def name_in(bundle: Bundle) -> str:
    """The local name of a topic that would fall into ``bundle``, and need not exist. Raises
    ``ServiceNotReady`` for a bundle so small that none is found."""
    begin = zlib.crc32(f"persistent://{bundle.namespace}/__bundle-".encode())
    for number in range(NAMES_TRIED_MAX):
        if bundle.covers(zlib.crc32(str(number).encode(), begin)):
            return f"__bundle-{number}"
    raise ServiceNotReady(f"no name of a topic in {bundle} was found")
