"""Proves what a proxy makes of a client's first frames: answers of its own, a broker's, a splice,
or an end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.geminga_proxy.world import PORT, TOPIC, Place, answer, join

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_auth_challenge, encode_error
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, PING
from geminga_proxy.config import InboundConfig, ProxyConfig, TargetConfig

CONFIG = ProxyConfig(bind_address="proxy", port=PORT)
TARGET = f"broker-1:{PORT}"
LOOKUP = api.CommandLookupTopic(topic=TOPIC, request_id=7, authoritative=False)


async def test_the_proxy_answers_a_client_that_names_no_broker_itself(place: Place) -> None:
    async with place.proxy():
        client = await place.client()
        client.say(
            BaseCommand.CONNECT, connect=api.CommandConnect(client_version="c", protocol_version=19)
        )
        connected = (await client.next()).connected
        assert connected.protocol_version == 19
        assert not connected.feature_flags.supports_topic_watchers
        assert not connected.HasField("max_message_size")
        client.say(BaseCommand.PING, ping=api.CommandPing())
        assert (await client.next()).type == BaseCommand.PONG
    assert place.brokers["broker-1"] == []


async def test_a_broker_gets_the_connect_of_a_client_that_names_it(place: Place) -> None:
    async with place.proxy():
        client = await place.client()
        join(client, TARGET)
        assert (await client.next()).connected.max_message_size == 1 << 20
        (broker,) = place.brokers["broker-1"]
        connect = broker.commands[0].connect
        assert not connect.HasField("proxy_to_broker_url")
        assert connect.proxy_version
        assert (connect.client_version, connect.auth_data) == ("c", b"secret")
        assert connect.protocol_version == 19


async def test_bytes_go_both_ways_as_they_are(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.joined(TARGET)
        (broker,) = place.brokers["broker-1"]
        before = len(broker.read)
        client.transport.write(b"anything at all")
        await broker.until(lambda: broker.read[before:] == b"anything at all")
        broker.transport.write(b"and back")
        await client.until(lambda: client.read == b"and back")
        assert proxy.splices.counts.carried_bytes == len(b"anything at all" + b"and back")


async def test_what_a_client_says_right_after_connect_reaches_its_broker(place: Place) -> None:
    async with place.proxy():
        client = await place.client()
        join(client, TARGET)
        client.say(BaseCommand.PING, ping=api.CommandPing())
        client.transport.write(b"and half a frame")
        assert (await client.next()).type == BaseCommand.CONNECTED
        (broker,) = place.brokers["broker-1"]
        await broker.until(lambda: broker.read.endswith(b"and half a frame"))


async def test_a_broker_may_challenge_a_client_and_refuse_it(place: Place) -> None:
    place.answers = lambda _: encode_auth_challenge("token", b"who?", 19)
    async with place.proxy():
        client = await place.client()
        join(client, TARGET)
        assert (await client.next()).authChallenge.challenge.auth_data == b"who?"
        client.transport.write(b"an answer")
        (broker,) = place.brokers["broker-1"]
        await broker.until(lambda: broker.read.endswith(b"an answer"))
        broker.transport.write(encode_error(NO_REQUEST_ID, api.AuthenticationError, "no"))
        broker.transport.close()
        assert (await client.next()).error.error == api.AuthenticationError
        await client.until(lambda: client.is_lost)


@pytest.mark.parametrize("target", ["elsewhere:6650", "broker-1:22", "nonsense:x", "u@broker-1"])
async def test_what_is_no_broker_gets_no_connection(place: Place, target: str) -> None:
    attempts = await place.start_broker("elsewhere")
    del place.brokers["elsewhere"]
    await place.start_broker("broker-2")  # the view is made anew, without elsewhere
    async with place.proxy() as proxy:
        client = await place.client()
        join(client, target)
        error = (await client.next()).error
        assert (error.error, error.request_id) == (api.ServiceNotReady, NO_REQUEST_ID)
        assert error.message == "Target broker cannot be validated."
        await client.until(lambda: client.is_lost)
        assert attempts == []
        assert proxy.connections == 0


async def test_a_broker_that_is_gone_is_not_ready(place: Place) -> None:
    place.network.host("broker-2")
    place.brokers["broker-2"] = []
    await place.start_broker("broker-3")
    place.network.host("broker-2")
    async with place.proxy():
        client = await place.client()
        join(client, f"broker-2:{PORT}")
        error = (await client.next()).error
        assert error.message == "Target broker isn't available."
        await client.until(lambda: client.is_lost)


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", encode_error(1, api.UnknownError, "x")[:9], PING],
)
async def test_nothing_follows_to_what_does_not_answer_as_a_broker(
    place: Place, said: bytes
) -> None:
    place.answers = lambda _: said
    config = replace(CONFIG, targets=TargetConfig(broker_proxy_connect_timeout_s=3.0))
    async with place.proxy(config) as proxy:
        client = await place.client()
        join(client, TARGET)
        client.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.next()).error.message == "Target broker isn't available."
        (broker,) = place.brokers["broker-1"]
        await broker.until(lambda: broker.is_lost)
        assert b"GET" not in broker.read
        assert proxy.connections == 0


async def test_a_client_that_leaves_while_it_is_joined_leaves_nothing(place: Place) -> None:
    place.answers = lambda _: b""
    async with place.proxy() as proxy:
        client = await place.client()
        join(client, TARGET)
        await asyncio.sleep(0.1)
        client.transport.abort()
        (broker,) = place.brokers["broker-1"]
        await broker.until(lambda: broker.is_lost)
        assert proxy.connections == 0
        assert not proxy.context.open


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1\0", b"\x7f" * 200_000],
    ids=["http", "bad", "big"],
)
async def test_garbage_ends_a_connection(place: Place, said: bytes) -> None:
    async with place.proxy() as proxy:
        client = await place.client()
        client.transport.write(said)
        await client.until(lambda: client.is_lost)
        assert proxy.connections == 0


async def test_a_client_that_says_nothing_is_cut_off(place: Place) -> None:
    async with place.proxy():
        client = await place.client()
        started = asyncio.get_running_loop().time()
        await client.until(lambda: client.is_lost)
        assert 29 < asyncio.get_running_loop().time() - started < 31


async def test_a_client_that_answers_no_ping_is_cut_off(place: Place) -> None:
    async with place.proxy():
        client = await place.asking()
        assert (await client.next()).type == BaseCommand.PING
        client.say(BaseCommand.PONG, pong=api.CommandPong())
        assert (await client.next()).type == BaseCommand.PING
        await client.until(lambda: client.is_lost)


async def test_what_only_brokers_do_is_refused_without_ending_the_connection(place: Place) -> None:
    async with place.proxy():
        client = await place.asking()
        producer = api.CommandProducer(topic=TOPIC, producer_id=1, request_id=5)
        client.say(BaseCommand.PRODUCER, producer=producer)
        error = (await client.next()).error
        assert (error.request_id, error.error) == (5, api.NotAllowedError)
        client.say(BaseCommand.LOOKUP, lookupTopic=LOOKUP)
        assert (await client.next()).lookupTopicResponse.request_id == 7


async def test_a_connection_too_many_is_refused_and_room_comes_back(place: Place) -> None:
    config = replace(CONFIG, connections=InboundConfig(connections_max=1))
    async with place.proxy(config) as proxy:
        client = await place.joined(TARGET)
        other = await place.client()
        assert (await other.next()).error.error == api.NotAllowedError
        await other.until(lambda: other.is_lost)
        assert proxy.context.counts.rejected == 1
        client.transport.close()
        (broker,) = place.brokers["broker-1"]
        await broker.until(lambda: broker.is_lost)
        await asyncio.sleep(0.1)
        await place.joined(TARGET)


async def test_a_balancer_says_whose_connection_it_is(place: Place) -> None:
    config = replace(
        CONFIG,
        ha_proxy_protocol_enabled=True,
        connections=InboundConfig(connections_per_address_max=1),
    )
    async with place.proxy(config) as proxy:
        for number in range(1, 4):
            client = await place.client()
            client.transport.write(b"PROXY TCP4 192.0.2.%d 198.51.100.1 1 2\r\n" % number)
            join(client, TARGET)
            assert (await client.next()).type == BaseCommand.CONNECTED
        again = await place.client()
        again.transport.write(b"PROXY TCP4 192.0.2.3 198.51.100.1 1 2\r\n")
        assert (await again.next()).error.message.endswith("on address 192.0.2.3")
        await again.until(lambda: again.is_lost)
        direct = await place.client()  # a header may be missing
        join(direct, TARGET)
        assert (await direct.next()).type == BaseCommand.CONNECTED
        assert proxy.connections == 4


async def test_a_header_is_no_pulsar_where_none_is_expected(place: Place) -> None:
    async with place.proxy():
        client = await place.client()
        client.transport.write(b"PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n")
        await client.until(lambda: client.is_lost)


async def test_a_client_with_many_open_questions_is_not_read(place: Place) -> None:
    place.answers = lambda command: b"" if command.type == BaseCommand.LOOKUP else answer(command)
    async with place.proxy() as proxy:
        client = await place.asking()
        for number in range(1_500):
            lookup = api.CommandLookupTopic(topic=TOPIC, request_id=number)
            client.say(BaseCommand.LOOKUP, lookupTopic=lookup)
            await asyncio.sleep(0.001)
        asked = proxy.lookups.counts["lookup"].asked
        assert 1_000 <= asked < 1_100
        # They time out, and the others are asked.
        await client.until(lambda: proxy.lookups.counts["lookup"].asked == 1_500)
