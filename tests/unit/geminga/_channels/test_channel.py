"""Proves that a channel comes back as long as it is of use, and tells when it is not.

A consumer's channel stands for both kinds: what they have in common is tested.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest
from tests.unit.geminga.fake_broker import FakeBroker, Session, until
from tests.unit.geminga.fake_network import FakeNetwork

from geminga import (
    ClientError,
    Closed,
    NotAuthorized,
    NotConnected,
    RequestTimedOut,
    TopicNotFound,
)
from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga._channels.registry import Channels, ClientOptions
from geminga._transport.connection import Connection
from geminga._transport.service_urls import BrokerAddress, Route
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_simulation.event_loop.loop import SimulatedLoop

OPTIONS = ConsumerChannelOptions(operation_timeout_s=5)


@pytest.fixture
async def channel(channels: Channels) -> ConsumerChannel:
    """A channel that is not open yet."""
    return new_channel(channels)


def new_channel(channels: Channels) -> ConsumerChannel:
    return ConsumerChannel(channels, TopicName.parse("t"), "s", OPTIONS)


def refuse(broker: FakeBroker, *errors: api.ServerError.ValueType) -> None:
    """Answer so many attempts to attach with these errors, and take the next."""
    healthy = broker.answers[BaseCommand.SUBSCRIBE]
    left = list(errors)

    def answer(session: Session, command: BaseCommand, payload: bytes) -> None:
        if left:
            session.write(answers.encode_error(command.subscribe.request_id, left.pop(0), "no"))
        else:
            healthy(session, command, payload)

    broker.on(BaseCommand.SUBSCRIBE, answer)


def attempts(broker: FakeBroker) -> int:
    return len(broker.of_type(BaseCommand.SUBSCRIBE))


async def test_an_open_channel_is_connected(channel: ConsumerChannel, broker: FakeBroker) -> None:
    await channel.open()
    assert channel.is_connected
    assert attempts(broker) == 1


async def test_a_passing_error_is_tried_again(channel: ConsumerChannel, broker: FakeBroker) -> None:
    refuse(broker, api.ServiceNotReady, api.MetadataError)
    await channel.open()
    assert attempts(broker) == 3


async def test_an_error_that_stays_ends_the_first_attempt(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    ended: list[ClientError] = []
    channel.on_end = ended.append
    refuse(broker, api.AuthorizationError)
    with pytest.raises(NotAuthorized):
        await channel.open()
    assert [type(error) for error in ended] == [NotAuthorized]
    assert channel.error is ended[0]
    with pytest.raises(NotAuthorized):
        await channel.last_message_id()
    await asyncio.sleep(60)
    assert attempts(broker) == 1


async def test_later_on_only_a_final_error_is_the_end(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    ended: list[ClientError] = []
    channel.on_end = ended.append
    await channel.open()
    refuse(broker, api.AuthorizationError, api.ConsumerBusy, api.TopicNotFound)
    broker.drop_connections()
    await until(lambda: bool(ended))
    assert [type(error) for error in ended] == [TopicNotFound]
    assert attempts(broker) == 4


@pytest.mark.parametrize("timeout_s", [None, 60.0])
async def test_a_broker_that_stays_away_is_given_up_where_that_is_wanted(
    network: FakeNetwork, broker: FakeBroker, timeout_s: float | None
) -> None:
    options = ClientOptions(reconnect_timeout_s=timeout_s)
    async with Channels(broker.url, options, network=network, random=Random(1)) as channels:
        channel = new_channel(channels)
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        channel.on_end = lambda _: ended.append(loop.time())
        await channel.open()
        await asyncio.sleep(1000)  # only without a broker counts
        broker.kill()
        killed_s = loop.time()
        await asyncio.sleep(3600)
        if timeout_s is None:
            assert channel.error is None
            broker.start()
            await until(lambda: channel.is_connected)
            return
        assert isinstance(channel.error, NotConnected)
        assert str(channel.error) == (
            "the consumer of persistent://public/default/t for s lost its broker, and none "
            "accepted it again within 60 s: "
            "broker:6650 cannot be reached: nothing listens on broker:6650"
        )
        assert ended == [pytest.approx(killed_s + 60, abs=0.1)]
        attempts_then = len(network.connects)
        await asyncio.sleep(3600)
        assert len(network.connects) == attempts_then


async def test_a_loop_that_was_blocked_too_long_makes_another_attempt_before_it_gives_up(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    options = ClientOptions(reconnect_timeout_s=20.0)
    async with Channels(broker.url, options, network=network, random=Random(1)) as channels:
        channel = new_channel(channels)
        await channel.open()
        broker.kill()
        await until(lambda: len(network.connects) > 1)
        broker.start()
        loop = cast(SimulatedLoop, asyncio.get_running_loop())
        loop.pause(loop.main, loop.time() + 40)
        await asyncio.sleep(50)
        assert channel.is_connected


async def test_a_broker_that_accepts_and_fails_at_once_is_asked_ever_more_rarely(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    """As aiokafka#496: a failing broker causes no storm of reconnects."""
    await channel.open()
    await asyncio.sleep(60)
    healthy = broker.answers[BaseCommand.SUBSCRIBE]

    def accept_and_fail(session: Session, command: BaseCommand, payload: bytes) -> None:
        healthy(session, command, payload)
        asyncio.get_running_loop().call_later(0.01, session.drop)

    broker.on(BaseCommand.SUBSCRIBE, accept_and_fail)
    attempts_before = attempts(broker)
    broker.drop_connections()
    await asyncio.sleep(600)
    assert 100 < attempts(broker) - attempts_before < 300, "one each 5 s in the end"
    broker.on(BaseCommand.SUBSCRIBE, healthy)
    await asyncio.sleep(60)
    broker.drop_connections()
    await asyncio.sleep(0.2)
    assert channel.is_connected, "one that lasted is had again at once"


async def test_seeking_again_and_again_takes_no_longer_each_time(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    del broker
    await channel.open()
    before_s = asyncio.get_running_loop().time()
    for _ in range(50):
        await channel.seek(0)
        await until(lambda: channel.is_connected)
    assert asyncio.get_running_loop().time() - before_s < 10


async def test_a_connection_that_broke_with_the_answer_is_none(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    healthy = broker.answers[BaseCommand.SUBSCRIBE]

    def accept_and_close(session: Session, command: BaseCommand, _payload: bytes) -> None:
        broker.on(BaseCommand.SUBSCRIBE, healthy)
        subscribe = command.subscribe
        session.write(
            answers.encode_success(subscribe.request_id),
            answers.encode_close_consumer(subscribe.consumer_id),
        )

    broker.on(BaseCommand.SUBSCRIBE, accept_and_close)
    await channel.open()
    assert attempts(broker) == 2
    await asyncio.sleep(1)
    assert len(broker.of_type(BaseCommand.FLOW)) == 1, "nothing is sent where it is not attached"


async def test_an_old_connection_detaches_nothing(
    channel: ConsumerChannel, channels: Channels, broker: FakeBroker
) -> None:
    await channel.open()
    old = await channels.pool.get(Route(BrokerAddress("broker", 6650)))
    broker.drop_connections()
    await until(lambda: attempts(broker) == 2)
    await until(lambda: channel.is_connected)
    channel.detached(old, None)
    await asyncio.sleep(60)
    assert channel.is_connected
    assert attempts(broker) == 2


async def test_a_request_does_not_wait_for_a_connection_for_ever(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await channel.open()
    broker.on(BaseCommand.LOOKUP)
    broker.drop_connections()
    await until(lambda: not channel.is_connected)
    with pytest.raises(RequestTimedOut, match="attaching to persistent://public/default/t"):
        await channel.last_message_id()


async def test_a_next_broker_that_is_away_is_tried_once(
    channel: ConsumerChannel, broker: FakeBroker, network: FakeNetwork
) -> None:
    await channel.open()
    broker.session.write(answers.encode_close_consumer(channel.id, broker_url="pulsar://away:6650"))
    await until(lambda: attempts(broker) == 2)
    assert network.connects == ["broker", "away"]


async def test_behind_a_proxy_the_next_broker_is_reached_through_it_too(
    channel: ConsumerChannel, broker: FakeBroker, network: FakeNetwork
) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_lookup(
                command.lookupTopic.request_id, broker_url="pulsar://a:1", is_through_proxy=True
            )
        ),
    )
    await channel.open()
    broker.open_sessions[-1].write(
        answers.encode_close_consumer(channel.id, broker_url="pulsar://b:2")
    )
    await until(lambda: attempts(broker) == 2)
    targets = [asked.connect.proxy_to_broker_url for asked in broker.of_type(BaseCommand.CONNECT)]
    assert targets == ["", "a:1", "b:2"]
    assert set(network.connects) == {"broker"}


async def test_leaving_a_broker_is_coming_back(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    await channel.open()
    channel.leave()
    assert not channel.is_connected
    await until(lambda: channel.is_connected)
    assert len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1
    assert len(broker.sessions) == 1


async def test_an_unanswered_attempt_is_taken_back(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SUBSCRIBE)
    with pytest.raises(RequestTimedOut):
        await channel.open()
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1)


async def test_opening_that_is_given_up_is_the_end(
    channel: ConsumerChannel, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.SUBSCRIBE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await channel.open()
    assert isinstance(channel.error, Closed)
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1)
    await asyncio.sleep(60)
    assert attempts(broker) == 1


async def test_opening_that_is_given_up_just_when_it_is_done_leaves_nothing_at_the_broker(
    channel: ConsumerChannel, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached = ConsumerChannel._resume

    def give_up(resumed: ConsumerChannel, connection: Connection) -> None:
        attached(resumed, connection)
        opening.cancel()

    monkeypatch.setattr(ConsumerChannel, "_resume", give_up)
    opening = asyncio.ensure_future(channel.open())
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: len(broker.of_type(BaseCommand.CLOSE_CONSUMER)) == 1)


async def test_channels_that_are_closed_open_nothing(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    async with Channels(broker.url, ClientOptions(), network=network, random=Random(1)) as channels:
        pass
    with pytest.raises(Closed):
        await new_channel(channels).open()
    assert not broker.received


async def test_closing_asks_the_owner_of_each_channel(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    closed: list[int] = []
    async with Channels(broker.url, ClientOptions(), network=network, random=Random(1)) as channels:
        first, second, third = (new_channel(channels) for _ in range(3))

        async def close_first() -> None:
            closed.append(first.id)
            await first.close()

        first.on_close = close_first
        for each in (first, second, third):
            await each.open()
        await third.close()
    assert closed == [first.id]
    assert isinstance(second.error, Closed)
    told = [each.close_consumer.consumer_id for each in broker.of_type(BaseCommand.CLOSE_CONSUMER)]
    assert sorted(told) == [first.id, second.id, third.id]
