"""What brokers ask each other about one bundle over REST, in requests that Apache's brokers answer
too: to acquire it, hand it on or split it, and which non-persistent topics are in it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote, urlencode

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.rest_calls import RestAnswer, RestCall, RestCalls

# A name in a given bundle is found by trying: of the largest ring (4,096 bundles) one in 4,096 is,
# and so many take a hundredth of a second.
NAMES_TRIED_MAX = 40_000

# The clients of a bundle wait for the broker that is asked to acquire it, which takes some requests
# to ZooKeeper; where it takes longer they had better look for themselves.
ASSIGN_TIMEOUT_S = 3.0
REDIRECT = 307


class BundleCalls:
    """Asks brokers through ``calls``; implements ``BundleMover`` of the load manager."""

    def __init__(self, calls: RestCalls, *, unload_timeout_s: float) -> None:
        """An owner has ``unload_timeout_s`` seconds to close the topics of a bundle."""
        self._calls = calls
        self._unload_timeout_s = unload_timeout_s

    async def assign(self, bundle: Bundle, asked: Owner) -> None:
        """Have the broker ``asked`` acquire a bundle, or choose which one shall: it is looked up
        there, as a client would. Raises ``ServerUnreachable``, ``ServiceNotReady``."""
        path = f"/lookup/v2/topic/persistent/{bundle.namespace}/{quote(name_in(bundle), safe='')}"
        word = "true" if asked.is_authoritative else "false"
        url = f"{self._url(asked)}{path}?authoritative={word}"
        await self._ask(RestCall("GET", url, timeout_s=ASSIGN_TIMEOUT_S))

    async def unload(self, owner: Owner, bundle: str, destination: str) -> None:
        """As ``BundleMover.unload``; for the leader.

        An owner of Apache's redirects a request that has a destination to the leader. It is asked
        again without: the leader knows the destination, and sends there whichever client looks the
        bundle up. An owner that has the bundle no more redirects that request, too.
        """
        words = {"authoritative": "true", "destinationBroker": destination}
        answer = await self._change(owner, bundle, "unload", words)
        if answer.status == REDIRECT:
            answer = await self._change(owner, bundle, "unload", {})
        _require_success(answer, f"unload {bundle}")

    async def split(self, owner: Owner, bundle: str, *, unload: bool) -> None:
        """As ``BundleMover.split``."""
        answer = await self._change(owner, bundle, "split", {"unload": str(unload).lower()})
        _require_success(answer, f"split {bundle}")

    async def non_persistent_topics(self, bundle: Bundle, owner: Owner) -> list[TopicName]:
        """The non-persistent topics that ``owner`` has open in its bundle. Raises
        ``ServerUnreachable``, ``ServiceNotReady``: no answer is not an empty one."""
        path = f"/admin/v2/non-persistent/{bundle.namespace}/{bundle.name}"
        url = f"{self._url(owner)}{path}?includeSystemTopic=true"
        answer = await self._ask(RestCall("GET", url))
        return [TopicName.parse(name) for name in cast("list[str]", answer.json())]

    async def _change(
        self, owner: Owner, bundle: str, action: str, query: Mapping[str, str]
    ) -> RestAnswer:
        words = urlencode({"authoritative": "false", **query})
        url = f"{self._url(owner)}/admin/v2/namespaces/{bundle}/{action}?{words}"
        # A redirect says that the bundle has moved since the owner reported it: what was decided
        # by that report is not done to another broker.
        timeout_s = self._unload_timeout_s
        call = RestCall("PUT", url, timeout_s=timeout_s, follows_redirects=False)
        return await self._calls.call(call)

    def _url(self, owner: Owner) -> str:
        return owner.rest_url(is_tls=self._calls.prefers_tls)

    async def _ask(self, call: RestCall) -> RestAnswer:
        answer = await self._calls.call(call)
        _require_success(answer, f"{call.method} {call.url}")
        return answer


def _require_success(answer: RestAnswer, what: str) -> None:
    if not answer.is_success:
        raise ServiceNotReady(f"{what}: {answer.reason}")


def name_in(bundle: Bundle) -> str:
    """The local name of a topic that would fall into ``bundle``, and need not exist. Raises
    ``ServiceNotReady`` for a bundle so small that none is found."""
    begin = zlib.crc32(f"persistent://{bundle.namespace}/__bundle-".encode())
    for number in range(NAMES_TRIED_MAX):
        if bundle.covers(zlib.crc32(str(number).encode(), begin)):
            return f"__bundle-{number}"
    raise ServiceNotReady(f"no name of a topic in {bundle} was found")
