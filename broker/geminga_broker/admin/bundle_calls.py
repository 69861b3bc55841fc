"""The requests that brokers make of each other about one bundle, over REST.

They have it acquired, unloaded or split, and list its non-persistent topics. Apache's brokers
answer the same requests.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import quote, urlencode

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.http.rest_calls import RestAnswer, RestCall, RestCalls

# A name that falls into a given bundle is found by trying: of the largest ring (4,096 bundles) one
# name in 4,096 does. So many tries take a hundredth of a second.
NAMES_TRIED_MAX = 40_000

# Clients wait while a broker is asked to acquire their bundle, which takes it some requests to
# ZooKeeper. Where it takes longer, they had better look the bundle up again.
ASSIGN_TIMEOUT_S = 3.0
REDIRECT = 307


@dataclass(frozen=True, slots=True, eq=False)
class BundleCalls:
    """Asks brokers through ``calls``; implements ``BundleMover`` of the load manager."""

    calls: RestCalls
    # How long an owner may take to close the topics of a bundle.
    unload_timeout_s: float

    async def assign(self, bundle: Bundle, asked: Owner) -> None:
        """Have the broker ``asked`` acquire a bundle, or choose a broker that does.

        For that a topic in the bundle is looked up there, as a client would. Raises
        ``ServerUnreachable``, ``ServiceNotReady``.
        """
        # A lookup is the one request for this that Apache's brokers answer, too.
        path = f"/lookup/v2/topic/persistent/{bundle.namespace}/{quote(name_in(bundle), safe='')}"
        authoritative = "true" if asked.is_authoritative else "false"
        url = f"{self._url(asked)}{path}?authoritative={authoritative}"
        answer = await self.calls.call(RestCall("GET", url, timeout_s=ASSIGN_TIMEOUT_S))
        _require_success(answer, f"GET {url}")

    async def unload(self, owner: Owner, bundle: str, destination: str) -> None:
        """As ``BundleMover.unload``; for the leader.

        An Apache broker redirects a request that has a destination to the leader. It is asked again
        without one: the leader knows the destination, and sends clients that look the bundle up
        there. A broker that does not own the bundle any more redirects that request, too.
        """
        # With authority, so that the owner does not pass it on. A broker of ours takes the
        # destination from the query, and hands the bundle on to that broker itself.
        query = {"authoritative": "true", "destinationBroker": destination}
        answer = await self._change(owner, bundle, "unload", query)
        if answer.status == REDIRECT:
            # Without authority: a broker that does not own the bundle any more passes the request
            # on.
            answer = await self._change(owner, bundle, "unload", {})
        _require_success(answer, f"unload {bundle}")

    async def split(self, owner: Owner, bundle: str, *, unload: bool) -> None:
        """As ``BundleMover.split``."""
        answer = await self._change(owner, bundle, "split", {"unload": str(unload).lower()})
        _require_success(answer, f"split {bundle}")

    async def non_persistent_topics(self, bundle: Bundle, owner: Owner) -> list[TopicName]:
        """The non-persistent topics that ``owner`` has open in its bundle.

        Raises ``ServerUnreachable``, ``ServiceNotReady``: no answer is not an empty list.
        """
        path = f"/admin/v2/non-persistent/{bundle.namespace}/{bundle.name}"
        # System topics, too: a namespace is deleted only when none is left.
        url = f"{self._url(owner)}{path}?includeSystemTopic=true"
        answer = await self.calls.call(RestCall("GET", url))
        _require_success(answer, f"GET {url}")
        return [TopicName.parse(name) for name in cast("list[str]", answer.json())]

    async def _change(
        self, owner: Owner, bundle: str, action: str, query: Mapping[str, str]
    ) -> RestAnswer:
        words = urlencode({"authoritative": "false", **query})
        url = f"{self._url(owner)}/admin/v2/namespaces/{bundle}/{action}?{words}"
        # A redirect means that the bundle has moved since the owner reported it. It is not
        # followed, as the decision was made by that report.
        timeout_s = self.unload_timeout_s
        call = RestCall("PUT", url, timeout_s=timeout_s, follows_redirects=False)
        return await self.calls.call(call)

    def _url(self, owner: Owner) -> str:
        return owner.rest_url(is_tls=self.calls.prefers_tls)


def _require_success(answer: RestAnswer, what: str) -> None:
    if not answer.is_success:
        raise ServiceNotReady(f"{what}: {answer.reason}")


def name_in(bundle: Bundle) -> str:
    """The local name of a topic that would fall into ``bundle``; it need not exist.

    Raises ``ServiceNotReady`` for a bundle so small that no name is found.
    """
    # The CRC of the common beginning, which is continued with each number.
    begin = zlib.crc32(f"persistent://{bundle.namespace}/__bundle-".encode())
    for number in range(NAMES_TRIED_MAX):
        if bundle.covers(zlib.crc32(str(number).encode(), begin)):
            return f"__bundle-{number}"
    raise ServiceNotReady(f"no name of a topic in {bundle} was found")
