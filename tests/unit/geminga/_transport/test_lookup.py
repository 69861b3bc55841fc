"""Proves that the owner of a topic is found, over redirects and through proxies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import (
    BrokerFailed,
    InvalidServiceUrl,
    NotConnected,
    RequestTimedOut,
    TooManyRedirects,
    TopicNotFound,
)
from geminga._transport.connection import ConnectionOptions
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.lookup import Lookup
from geminga._transport.service_urls import BrokerAddress, Route, parse_service_url
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, encode_command

TOPIC = "persistent://public/default/orders"


@pytest.fixture
async def connections(network: FakeNetwork) -> AsyncIterator[ConnectionPool]:
    async with ConnectionPool(network, ConnectionOptions()) as opened:
        yield opened


def lookup(connections: ConnectionPool, url: str = "pulsar://broker:6650", seed: int = 1) -> Lookup:
    return Lookup(connections, parse_service_url(url), Random(seed))


def redirect(broker: FakeBroker, url: str, *, is_authoritative: bool = False) -> None:
    def answer(session: Session, command: BaseCommand, _payload: bytes) -> None:
        session.write(
            answers.encode_lookup(
                command.lookupTopic.request_id,
                broker_url=url,
                is_redirect=True,
                is_authoritative=is_authoritative,
            )
        )

    broker.on(BaseCommand.LOOKUP, answer)


async def test_any_broker_knows_the_owner(connections: ConnectionPool, broker: FakeBroker) -> None:
    broker.owner_url = "pulsar://owner:7000"
    assert await lookup(connections).owner(TOPIC) == Route(BrokerAddress("owner", 7000))
    (asked,) = broker.of_type(BaseCommand.LOOKUP)
    assert asked.lookupTopic.topic == TOPIC
    assert not asked.lookupTopic.authoritative


async def test_a_redirect_is_followed_with_its_authority(
    connections: ConnectionPool, network: FakeNetwork, broker: FakeBroker
) -> None:
    other = FakeBroker(network, "other")
    redirect(broker, other.url, is_authoritative=True)
    assert await lookup(connections).owner(TOPIC) == Route(BrokerAddress("other", 6650))
    assert other.of_type(BaseCommand.LOOKUP)[0].lookupTopic.authoritative


async def test_brokers_that_send_in_circles_are_left(
    connections: ConnectionPool, network: FakeNetwork, broker: FakeBroker
) -> None:
    other = FakeBroker(network, "other")
    redirect(broker, other.url)
    redirect(other, broker.url)
    with pytest.raises(TooManyRedirects):
        await lookup(connections).owner(TOPIC)
    assert len(broker.of_type(BaseCommand.LOOKUP)) == 10


async def test_a_lookup_asks_no_more_brokers_than_it_was_told(
    connections: ConnectionPool, network: FakeNetwork, broker: FakeBroker
) -> None:
    other = FakeBroker(network, "other")
    redirect(broker, other.url)
    redirect(other, broker.url)
    addresses = parse_service_url("pulsar://broker:6650")
    with pytest.raises(TooManyRedirects, match="2 brokers"):
        await Lookup(connections, addresses, Random(1), redirects_max=2).owner(TOPIC)
    assert len(broker.of_type(BaseCommand.LOOKUP)) == 1


async def test_behind_a_proxy_the_owner_is_reached_through_it(
    connections: ConnectionPool, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_lookup(
                command.lookupTopic.request_id,
                broker_url="pulsar://hidden:7000",
                is_through_proxy=True,
            )
        ),
    )
    found = await lookup(connections).owner(TOPIC)
    assert found == Route(BrokerAddress("broker", 6650), "hidden:7000")


async def test_an_error_is_raised(connections: ConnectionPool, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_refusal(command, api.TopicNotFound, "no such topic") or b""
        ),
    )
    with pytest.raises(TopicNotFound):
        await lookup(connections).owner(TOPIC)


async def test_a_failure_without_reason_is_an_error_too(
    connections: ConnectionPool, broker: FakeBroker
) -> None:
    def fail(session: Session, command: BaseCommand, _payload: bytes) -> None:
        wire = answers.encode_lookup(command.lookupTopic.request_id, broker_url=None)
        # Connect (1) becomes Failed (2).
        session.write(wire.replace(b"\x18\x01", b"\x18\x02", 1))

    broker.on(BaseCommand.LOOKUP, fail)
    with pytest.raises(BrokerFailed):
        await lookup(connections).owner(TOPIC)


async def test_an_owner_that_is_no_address_is_an_error(
    connections: ConnectionPool, broker: FakeBroker
) -> None:
    broker.owner_url = "pulsar+tls://owner:6651"
    with pytest.raises(InvalidServiceUrl):
        await lookup(connections).owner(TOPIC)


async def test_partitions_are_asked_for(connections: ConnectionPool, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.PARTITIONED_METADATA,
        lambda session, command, _: session.write(
            answers.encode_partitions(command.partitionMetadata.request_id, 4)
        ),
    )
    assert await lookup(connections).partitions(TOPIC) == 4


async def test_a_broker_that_cannot_tell_the_partitions_is_an_error(
    connections: ConnectionPool, broker: FakeBroker
) -> None:
    failed = api.CommandPartitionedTopicMetadataResponse(
        response=api.CommandPartitionedTopicMetadataResponse.Failed
    )

    def fail(session: Session, command: BaseCommand, _payload: bytes) -> None:
        failed.request_id = command.partitionMetadata.request_id
        answer = BaseCommand(
            type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=failed
        )
        session.write(encode_command(answer))

    broker.on(BaseCommand.PARTITIONED_METADATA, fail)
    with pytest.raises(BrokerFailed):
        await lookup(connections).partitions(TOPIC)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("seed", range(4))
async def test_the_next_broker_is_asked_when_one_is_away(
    connections: ConnectionPool, network: FakeNetwork, seed: int
) -> None:
    asking = lookup(connections, "pulsar://away,broker,gone", seed)
    assert await asking.owner(TOPIC) == Route(BrokerAddress("broker", 6650))
    network.connects.clear()
    await asking.owner(TOPIC)
    assert network.connects == []


def two_brokers(network: FakeNetwork) -> tuple[FakeBroker, FakeBroker]:
    return FakeBroker(network, "first"), FakeBroker(network, "second")


async def asked_after_a_failure(
    connections: ConnectionPool, network: FakeNetwork, fail: Callable[[FakeBroker], None]
) -> list[int]:
    """How often each of two brokers is asked, where the one asked first fails like that."""
    first, second = two_brokers(network)
    asking = lookup(connections, "pulsar://first,second")
    await asking.owner(TOPIC)
    if second.received:
        first, second = second, first
    fail(first)
    with suppress(BrokerFailed, RequestTimedOut, TopicNotFound):
        await asking.owner(TOPIC)
    await asking.owner(TOPIC)
    return [len(broker.of_type(BaseCommand.LOOKUP)) for broker in (first, second)]


async def test_a_broker_that_does_not_answer_is_not_asked_again(
    connections: ConnectionPool, network: FakeNetwork
) -> None:
    def be_silent(broker: FakeBroker) -> None:
        broker.on(BaseCommand.LOOKUP)

    assert await asked_after_a_failure(connections, network, be_silent) == [2, 1]


def refuse(broker: FakeBroker, error: api.ServerError.ValueType) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_refusal(command, error, "not now") or b""
        ),
    )


async def test_a_broker_that_cannot_say_at_the_moment_is_not_asked_again(
    connections: ConnectionPool, network: FakeNetwork
) -> None:
    def fail(broker: FakeBroker) -> None:
        refuse(broker, api.MetadataError)

    assert await asked_after_a_failure(connections, network, fail) == [2, 1]


async def test_a_broker_that_says_no_is_asked_again(
    connections: ConnectionPool, network: FakeNetwork
) -> None:
    def say_no_once(broker: FakeBroker) -> None:
        usual = broker.answers[BaseCommand.LOOKUP]

        def answer(session: Session, command: BaseCommand, _payload: bytes) -> None:
            broker.on(BaseCommand.LOOKUP, usual)
            session.write(answers.encode_refusal(command, api.TopicNotFound, "no topic") or b"")

        broker.on(BaseCommand.LOOKUP, answer)

    assert await asked_after_a_failure(connections, network, say_no_once) == [3, 0]


async def test_lookups_that_fail_together_move_the_turn_on_once(
    connections: ConnectionPool, network: FakeNetwork
) -> None:
    first, second = two_brokers(network)
    asking = lookup(connections, "pulsar://first,second")
    (first, second)[asking._turn].on(BaseCommand.LOOKUP)
    asked = [asking.owner(TOPIC), asking.owner(TOPIC)]
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in ended] == [RequestTimedOut, RequestTimedOut]
    await asking.owner(TOPIC)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("seed", range(4))
async def test_questions_asked_together_all_find_the_one_broker_that_is_there(
    connections: ConnectionPool, seed: int
) -> None:
    asking = lookup(connections, "pulsar://away,broker", seed)
    found = await asyncio.gather(*(asking.owner(TOPIC) for _ in range(4)))
    assert set(found) == {Route(BrokerAddress("broker", 6650))}


@pytest.mark.usefixtures("broker")
async def test_a_broker_that_is_still_starting_is_left_for_the_next(
    connections: ConnectionPool, network: FakeNetwork
) -> None:
    other = FakeBroker(network, "other")
    other.on(
        BaseCommand.CONNECT,
        lambda session, _, __: session.write(
            encode_command(
                BaseCommand(
                    type=BaseCommand.ERROR,
                    error=api.CommandError(
                        request_id=NO_REQUEST_ID, error=api.ServiceNotReady, message="starting"
                    ),
                )
            )
        ),
    )
    for seed in range(4):
        asking = lookup(connections, "pulsar://other,broker", seed)
        assert await asking.owner(TOPIC) == Route(BrokerAddress("broker", 6650))


async def test_when_all_are_away_it_is_an_error(connections: ConnectionPool) -> None:
    with pytest.raises(NotConnected):
        await lookup(connections, "pulsar://away,gone").owner(TOPIC)


async def test_a_listener_is_named_in_each_lookup(
    connections: ConnectionPool, broker: FakeBroker
) -> None:
    addresses = parse_service_url(broker.url)
    await Lookup(connections, addresses, Random(1), listener_name="inside").owner(TOPIC)
    await Lookup(connections, addresses, Random(1)).owner(TOPIC)
    named = [each.lookupTopic for each in broker.of_type(BaseCommand.LOOKUP)]
    assert named[0].advertised_listener_name == "inside"
    assert not named[1].HasField("advertised_listener_name")
