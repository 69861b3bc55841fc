"""Topics get what their namespace's policies mean, resolved once for all of them."""

from __future__ import annotations

from geminga_broker.policies.effective import PolicyConfig
from geminga_broker.policies.expiry import ExpiryConfig
from geminga_broker.policies.inactivity import NEVER
from geminga_broker.policies.resolver import NAMESPACES_KEPT_MAX, PolicyResolver, no_policies
from geminga_cluster.errors import NamespaceNotFound
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies, PublishRate

CONFIG = PolicyConfig(expiry=ExpiryConfig(ttl_default_s=1))
NAME = TopicName.parse("persistent://t/n/topic")


async def test_topics_of_a_namespace_share_what_holds_until_its_policies_change() -> None:
    policies = Policies(message_ttl_s=2)

    async def of(_: NamespaceName) -> Policies:
        return policies

    resolver = PolicyResolver(CONFIG, of)
    first = await resolver.of(NAME)
    assert first.expiry.ttl_s == 2
    assert await resolver.of(TopicName.parse("persistent://t/n/other")) is first
    policies = Policies(message_ttl_s=3)
    assert (await resolver.of(NAME)).expiry.ttl_s == 3


async def test_brokers_own_topics_of_a_namespace_have_policies_of_their_own() -> None:
    resolver = PolicyResolver(CONFIG, no_policies)
    events = await resolver.of(TopicName.parse("persistent://t/n/__change_events"))
    assert events.expiry.ttl_s == 0
    assert (await resolver.of(NAME)).expiry.ttl_s == 1


async def test_without_a_namespace_the_broker_s_word_holds_but_nothing_is_deleted() -> None:
    async def none(namespace: NamespaceName) -> Policies:
        raise NamespaceNotFound(str(namespace))

    held = await PolicyResolver(CONFIG, none).of(NAME)
    assert held.expiry.ttl_s == 1
    assert held.inactivity == NEVER


async def test_a_rate_counts_for_the_broker_s_own_cluster() -> None:
    policies = Policies(publish_max_message_rate={"here": PublishRate(messages=5)})
    here = PolicyResolver(CONFIG, no_policies, cluster="here").resolve(NAME, policies)
    there = PolicyResolver(CONFIG, no_policies, cluster="there").resolve(NAME, policies)
    assert here.publishing.limits.messages_per_s == 5
    assert there.publishing.limits.is_unlimited


def test_what_is_remembered_is_bounded() -> None:
    resolver = PolicyResolver(CONFIG, no_policies)
    policies = Policies()
    for number in range(NAMESPACES_KEPT_MAX + 10):
        resolver.resolve(TopicName.parse(f"persistent://t/n{number}/topic"), policies)
        assert len(resolver._resolved) <= NAMESPACES_KEPT_MAX
