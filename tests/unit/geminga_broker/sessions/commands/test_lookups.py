"""Proves what lookups answer, and that they are counted by what they answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.geminga_broker.sessions.stand_ins import FrameClient, MemoryDiscovery

from geminga_broker.sessions.context import SessionContext
from geminga_protocol.pulsar import api_pb2 as api

Connect = Callable[[], FrameClient]
Settle = Callable[[], Awaitable[None]]


@pytest.fixture
def discovery(context: SessionContext) -> MemoryDiscovery:
    """What the sessions ask."""
    assert isinstance(context.discovery, MemoryDiscovery)
    return context.discovery


async def test_a_topic_of_ours_is_answered_with_our_address_once_and_for_all(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    request_id = client.ask("lookupTopic", topic="t/n/topic")
    await settle()
    (answer,) = client.all_of("lookupTopicResponse")
    assert answer.request_id == request_id
    assert answer.response == api.CommandLookupTopicResponse.Connect
    assert answer.brokerServiceUrl == "pulsar://here:6650"
    assert answer.authoritative


async def test_a_topic_of_another_brokers_is_answered_with_its_address(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("lookupTopic", topic="t/n/elsewhere")
    await settle()
    (answer,) = client.all_of("lookupTopicResponse")
    assert answer.response == api.CommandLookupTopicResponse.Connect
    assert answer.brokerServiceUrl == "pulsar://there:6650"


@pytest.mark.parametrize(("topic", "has_authority"), [("unowned", True), ("unplaced", False)])
async def test_the_broker_that_is_to_own_a_topic_is_asked_with_authority_and_the_leader_without(
    connect: Connect, settle: Settle, topic: str, *, has_authority: bool
) -> None:
    client = connect()
    client.ask("lookupTopic", topic=f"t/n/{topic}")
    await settle()
    (answer,) = client.all_of("lookupTopicResponse")
    assert answer.response == api.CommandLookupTopicResponse.Redirect
    assert answer.brokerServiceUrl == "pulsar://there:6650"
    assert answer.authoritative == has_authority


async def test_a_broker_that_is_asked_with_authority_redirects_no_further(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("lookupTopic", topic="t/n/unowned", authoritative=True)
    await settle()
    (answer,) = client.all_of("lookupTopicResponse")
    assert answer.response == api.CommandLookupTopicResponse.Connect
    assert answer.brokerServiceUrl == "pulsar://here:6650"


async def test_a_listener_that_the_broker_does_not_have_is_refused(
    connect: Connect, settle: Settle
) -> None:
    client = connect()
    client.ask("lookupTopic", topic="t/n/topic", advertised_listener_name="outside")
    await settle()
    (answer,) = client.all_of("lookupTopicResponse")
    assert answer.error == api.ServiceNotReady
    assert "outside" in answer.message


async def test_lookups_are_counted_by_their_answers(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    client = connect()
    for topic in ("topic", "elsewhere", "unowned", "nowhere", "undecided"):
        client.ask("lookupTopic", topic=f"t/n/{topic}")
    await settle()
    counts = context.counts
    assert (counts.lookups_answered, counts.lookups_redirected) == (2, 1)
    assert (counts.lookups_failed, counts.lookups_pending) == (1, 1)
    assert counts.lookup_durations.count == 4


async def test_more_requests_at_once_than_allowed_are_refused_until_others_are_answered(
    connect: Connect, settle: Settle, context: SessionContext
) -> None:
    context.config = replace(context.config, concurrent_lookup_requests_max=1)
    client, other = connect(), connect()
    client.ask("lookupTopic", topic="t/n/undecided")
    other.ask("lookupTopic", topic="t/n/topic")
    other.ask("partitionMetadata", topic="t/n/topic")
    await settle()
    (lookup,) = other.all_of("lookupTopicResponse")
    (partitions,) = other.all_of("partitionMetadataResponse")
    assert (lookup.error, partitions.error) == (api.TooManyRequests, api.TooManyRequests)
    assert lookup.message == "Failed due to too many pending lookup requests"
    assert (context.counts.lookups_pending, context.counts.lookups_failed) == (1, 1)
    context.config = replace(context.config, concurrent_lookup_requests_max=2)
    other.ask("lookupTopic", topic="t/n/topic")
    other.ask("lookupTopic", topic="t/n/topic")  # the first one is answered by then
    await settle()
    answers = other.all_of("lookupTopicResponse")[-2:]
    assert [each.brokerServiceUrl for each in answers] == ["pulsar://here:6650"] * 2
    assert context.counts.lookups_pending == 1


async def test_partitions_are_answered_with_their_number(
    connect: Connect, settle: Settle, discovery: MemoryDiscovery
) -> None:
    discovery.partitions_of = {"persistent://t/n/parted": 4}
    client = connect()
    for topic in ("parted", "plain"):
        client.ask("partitionMetadata", topic=f"persistent://t/n/{topic}")
    await settle()
    assert [each.partitions for each in client.all_of("partitionMetadataResponse")] == [4, 0]
