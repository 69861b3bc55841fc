"""What brokers ask each other about bundles over REST, answered as their REST side does it: to look
one up and so have it acquired, to hand one on, to split one."""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.simulation.functions.workers import HostCalls

from geminga_broker.broker import Broker
from geminga_broker.ownership.assignment.split import RANGE_EQUALLY_DIVIDE, split_boundaries
from geminga_broker.ownership.errors import BundleNotSplit, NotOwned
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_runtime.errors import GemingaError
from geminga_scenarios.cluster import Cluster
from geminga_server.http.rest_calls import RestAnswer, RestCall

LOOKUP = "/lookup/v2/topic/persistent/"
BUNDLES = "/admin/v2/namespaces/"


def serve_bundles(cluster: Cluster) -> None:
    """Have the brokers of a cluster that is not open yet ask each other."""
    cluster.calls_of = lambda host: HostCalls(cluster.world, host.name, partial(_answer, cluster))


async def _answer(cluster: Cluster, host_name: str, call: RestCall) -> RestAnswer:
    host = next(each for each in cluster.brokers if each.name == host_name)
    broker, url = cluster.broker(host), urlsplit(call.url)
    if broker is None:
        return _refusal(503, "the broker is just starting")
    try:
        if url.path.startswith(LOOKUP):
            return await _looked_up(broker, url.path.removeprefix(LOOKUP), parse_qs(url.query))
        await _changed(broker, url.path.removeprefix(BUNDLES), parse_qs(url.query))
    except GemingaError as error:
        return _refusal(409, str(error))
    return RestAnswer(204)


def _refusal(status: int, reason: str) -> RestAnswer:
    return RestAnswer(status, json.dumps({"reason": reason}).encode())


async def _looked_up(broker: Broker, path: str, query: dict[str, list[str]]) -> RestAnswer:
    name = TopicName.parse(f"persistent://{unquote(path)}")
    owner = await broker.ownership.owner(name, authoritative=query["authoritative"] == ["true"])
    if owner.is_self:
        return RestAnswer(200, b"{}")
    words = urlencode({"authoritative": str(owner.is_authoritative).lower()})
    return RestAnswer(307, location=f"{owner.http_url}{LOOKUP}{path}?{words}")


async def _changed(broker: Broker, path: str, query: dict[str, list[str]]) -> None:
    """Raises ``NotOwned`` where REST would redirect to the owner, which brokers do not follow."""
    bundle_name, _, action = path.rpartition("/")
    namespace = NamespaceName.parse(bundle_name.rpartition("/")[0])
    ownership = broker.ownership
    bundle = (await ownership.rings.ring_of(namespace)).named(bundle_name.rpartition("/")[2])
    if bundle is None:
        raise BundleNotSplit(bundle_name, "there is no such bundle")
    if bundle not in ownership.owned.generations:
        raise NotOwned(str(bundle))
    if action == "unload":
        await ownership.unload(bundle, query["destinationBroker"][0])
        return
    cuts = split_boundaries(bundle, RANGE_EQUALLY_DIVIDE, hashes=[], positions=[])
    for child in await ownership.split(bundle, cuts):
        if query["unload"] == ["true"]:
            await ownership.unload(child)
