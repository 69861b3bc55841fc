"""Proves how a broker has another acquire a bundle, by a lookup of a topic in it, hand it on, and
split it, and asks which non-persistent topics are in it."""

from __future__ import annotations

import json

import pytest

from geminga_broker.admin.bundle_calls import BundleCalls, name_in
from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import LookupReason, Owner
from geminga_broker.ownership.assignment.bundles import Bundle, BundleRing, parse_boundary
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData
from geminga_server.http.rest_calls import RestAnswer, RestCall

SHOP = NamespaceName("acme", "shop")
BUNDLES = BundleRing(
    SHOP, [parse_boundary(at) for at in BundlesData.equal(4096).boundaries]
).bundles
OWNER = Owner("pulsar://a:0", "", "http://a:1", "", is_self=False)


class OneAnswer:
    """Answers everything the same."""

    prefers_tls = False

    def __init__(self, answer: RestAnswer) -> None:
        self.answer = answer
        self.calls: list[RestCall] = []

    async def call(self, call: RestCall) -> RestAnswer:
        self.calls.append(call)
        return self.answer


def of(calls: OneAnswer) -> BundleCalls:
    return BundleCalls(calls, unload_timeout_s=7)


@pytest.mark.parametrize("bundle", BUNDLES[::311])
def test_a_name_is_found_in_bundles_of_the_largest_ring(bundle: Bundle) -> None:
    assert bundle.covers(TopicName.of("persistent", "acme", "shop", name_in(bundle)).hash)


def test_a_bundle_of_one_hash_is_left_alone() -> None:
    with pytest.raises(ServiceNotReady):
        name_in(Bundle(SHOP, 7, 8))


@pytest.mark.parametrize(
    ("reason", "word"), [(LookupReason.CHOSEN, "true"), (LookupReason.DECIDES, "false")]
)
async def test_the_chosen_broker_is_asked_with_authority_and_the_leader_without(
    reason: LookupReason, word: str
) -> None:
    calls = OneAnswer(RestAnswer(200))
    there = Owner("pulsar://b:1", "", "http://b:2", "", is_self=False, reason=reason)
    await of(calls).assign(BUNDLES[0], there)
    (call,) = calls.calls
    name = name_in(BUNDLES[0])
    path = f"/lookup/v2/topic/persistent/acme/shop/{name}"
    assert (call.method, call.url) == ("GET", f"http://b:2{path}?authoritative={word}")


async def test_the_refusal_of_another_broker_is_raised_with_its_reason() -> None:
    calls = OneAnswer(RestAnswer(503, b'{"reason":"it closes"}'))
    there = Owner("pulsar://b:1", "", "http://b:2", "", is_self=False)
    with pytest.raises(ServiceNotReady, match="it closes"):
        await of(calls).assign(BUNDLES[0], there)


async def test_the_owner_is_asked_to_hand_a_bundle_on_or_to_split_it() -> None:
    calls = OneAnswer(RestAnswer(204))
    bundle = "public/default/0x40000000_0x80000000"
    await of(calls).unload(OWNER, bundle, "127.0.0.1:8081")
    await of(calls).split(OWNER, bundle, unload=True)
    path = f"http://a:1/admin/v2/namespaces/{bundle}"
    assert [(call.method, call.url) for call in calls.calls] == [
        ("PUT", f"{path}/unload?authoritative=true&destinationBroker=127.0.0.1%3A8081"),
        ("PUT", f"{path}/split?authoritative=false&unload=true"),
    ]
    assert {(call.timeout_s, call.follows_redirects) for call in calls.calls} == {(7, False)}


async def test_what_an_owner_redirects_is_not_done_elsewhere() -> None:
    calls = OneAnswer(RestAnswer(307, location="http://b:1/"))
    with pytest.raises(ServiceNotReady, match="307"):
        await of(calls).unload(OWNER, "public/default/0x00000000_0x80000000", "b:1")
    with pytest.raises(ServiceNotReady, match="307"):
        await of(calls).split(OWNER, "public/default/0x00000000_0x80000000", unload=True)
    assert {call.url.partition("/admin")[0] for call in calls.calls} == {"http://a:1"}


async def test_an_owner_that_redirects_a_destination_to_the_leader_is_asked_again_without() -> None:
    class ApachesOwner(OneAnswer):
        async def call(self, call: RestCall) -> RestAnswer:
            await super().call(call)
            has_destination = "destinationBroker" in call.url
            return RestAnswer(307, location="http://leader:1/") if has_destination else self.answer

    calls = ApachesOwner(RestAnswer(204))
    await of(calls).unload(OWNER, "public/default/0x00000000_0x80000000", "b:1")
    assert len(calls.calls) == 2


async def test_an_owner_is_asked_for_the_non_persistent_topics_of_its_bundle() -> None:
    names = ["non-persistent://acme/shop/a", "non-persistent://acme/shop/b-partition-0"]
    calls = OneAnswer(RestAnswer(200, json.dumps(names).encode()))
    there = Owner("pulsar://b:1", "", "http://b:2", "", is_self=False)
    topics = await of(calls).non_persistent_topics(BUNDLES[0], there)
    assert topics == [TopicName.parse(name) for name in names]
    (call,) = calls.calls
    path = "/admin/v2/non-persistent/acme/shop/0x00000000_0x00100000"
    assert (call.method, call.url) == ("GET", f"http://b:2{path}?includeSystemTopic=true")


async def test_an_owner_that_refuses_to_list_its_topics_has_not_said_that_it_has_none() -> None:
    calls = OneAnswer(RestAnswer(503, b'{"reason":"it closes"}'))
    there = Owner("pulsar://b:1", "", "http://b:2", "", is_self=False)
    with pytest.raises(ServiceNotReady, match="it closes"):
        await of(calls).non_persistent_topics(BUNDLES[0], there)
