"""Proves that a connection shakes hands, notices silence, and survives whatever a broker sends."""

from __future__ import annotations

import asyncio
import gc

import pytest
from google.protobuf.message import EncodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga.fake_broker import FakeBroker, until
from tests.unit.geminga.fake_network import FakeNetwork, FakeTransport

from geminga import BrokerFailed, ClientError, ConnectionLost, NotAuthenticated
from geminga._transport.connection import Connection, ConnectionOptions
from geminga._transport.service_urls import BrokerAddress, Route
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import NO_REQUEST_ID, PING, encode_command
from geminga_simulation.event_loop.loop import SimulatedLoop

ADDRESS = BrokerAddress("broker", 6650)
LOOKUP = BaseCommand(
    type=BaseCommand.LOOKUP, lookupTopic=api.CommandLookupTopic(topic="t", request_id=0)
)

CHALLENGE = BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=api.CommandAuthChallenge())


async def connect(
    network: FakeNetwork, options: ConnectionOptions | None = None, proxy: str | None = None
) -> Connection:
    connection = Connection(Route(ADDRESS, proxy), options or ConnectionOptions())
    await network.connect(lambda: connection, ADDRESS.host, ADDRESS.port)
    return connection


async def test_both_sides_say_what_they_are(network: FakeNetwork, broker: FakeBroker) -> None:
    connection = await connect(network, proxy="hidden:6650")
    await connection.ready()
    assert connection.is_open
    assert connection.max_message_bytes == 100_000
    (hello,) = broker.received
    assert hello.connect.client_version.startswith("Geminga")
    assert hello.connect.protocol_version == 21
    assert hello.connect.proxy_to_broker_url == "hidden:6650"


async def test_a_connection_is_not_open_before_the_hand_shake(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.CONNECT)
    connection = await connect(network)
    assert not connection.is_open


async def test_a_refused_hand_shake_says_why(network: FakeNetwork, broker: FakeBroker) -> None:
    refused = answers.encode_error(NO_REQUEST_ID, api.AuthenticationError, "who are you")
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.write(refused))
    connection = await connect(network)
    with pytest.raises(NotAuthenticated, match="who are you"):
        await connection.ready()
    await connection.closed()
    assert not connection.is_open


async def test_another_answer_to_connect_is_no_broker(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.write(answers.encode_success(1)))
    connection = await connect(network)
    with pytest.raises(ConnectionLost):
        await connection.ready()


async def test_answers_find_their_requests(network: FakeNetwork, broker: FakeBroker) -> None:
    broker.on(BaseCommand.LOOKUP)
    connection = await connect(network)
    await connection.ready()
    asked = [asyncio.create_task(connection.request(clone(LOOKUP))) for _ in range(3)]
    await until(lambda: len(broker.of_type(BaseCommand.LOOKUP)) == 3)
    ids = [command.lookupTopic.request_id for command in broker.of_type(BaseCommand.LOOKUP)]
    assert len(set(ids)) == 3
    for request_id in reversed(ids):
        broker.session.write(
            answers.encode_lookup(request_id, broker_url=f"pulsar://b{request_id}")
        )
    urls = [command.lookupTopicResponse.brokerServiceUrl for command in await gather(asked)]
    assert urls == [f"pulsar://b{request_id}" for request_id in ids]


@pytest.mark.usefixtures("broker")
async def test_a_command_that_cannot_be_encoded_leaves_no_request_open(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await connect(network)
    await connection.ready()
    with pytest.raises(EncodeError):
        await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE))
    await asyncio.sleep(3600)  # longer than any answer is waited for
    gc.collect()
    assert "never retrieved" not in caplog.text
    answer = await connection.request(clone(LOOKUP))
    assert answer.type == BaseCommand.LOOKUP_RESPONSE


async def test_a_request_that_is_cancelled_leaves_its_answer_to_no_other(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    """As redis-py#2624: there the next request got the answer of the cancelled one."""
    broker.on(BaseCommand.LOOKUP)
    connection = await connect(network)
    await connection.ready()
    given_up = [asyncio.create_task(connection.request(clone(LOOKUP))) for _ in range(3)]
    await until(lambda: len(broker.of_type(BaseCommand.LOOKUP)) == 3)
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    asked = asyncio.create_task(connection.request(clone(LOOKUP)))
    await until(lambda: len(broker.of_type(BaseCommand.LOOKUP)) == 4)
    request_ids = [each.lookupTopic.request_id for each in broker.of_type(BaseCommand.LOOKUP)]
    for request_id in request_ids:
        broker.session.write(
            answers.encode_lookup(request_id, broker_url=f"pulsar://b{request_id}")
        )
    assert (await asked).lookupTopicResponse.brokerServiceUrl == f"pulsar://b{request_ids[-1]}"
    assert all(task.cancelled() for task in given_up)


async def gather(asked: list[asyncio.Task[BaseCommand]]) -> list[BaseCommand]:
    return [await task for task in asked]


def clone(command: BaseCommand) -> BaseCommand:
    copied = BaseCommand()
    copied.CopyFrom(command)
    return copied


async def test_open_requests_fail_with_the_connection(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.LOOKUP, lambda session, _, __: session.drop())
    connection = await connect(network)
    await connection.ready()
    with pytest.raises(ConnectionLost):
        await connection.request(clone(LOOKUP))
    with pytest.raises(ConnectionLost):
        await connection.request(clone(LOOKUP))


async def test_a_ping_is_answered_at_once(network: FakeNetwork, broker: FakeBroker) -> None:
    connection = await connect(network)
    await connection.ready()
    broker.session.write(PING)
    await until(lambda: bool(broker.of_type(BaseCommand.PONG)))


async def test_a_quiet_broker_is_asked_and_stays(network: FakeNetwork, broker: FakeBroker) -> None:
    connection = await connect(network, ConnectionOptions(ping_interval_s=30))
    await connection.ready()
    await asyncio.sleep(600)
    assert connection.is_open
    assert 8 <= len(broker.of_type(BaseCommand.PING)) <= 20


async def test_a_silent_broker_is_given_up(network: FakeNetwork, broker: FakeBroker) -> None:
    broker.on(BaseCommand.PING)
    connection = await connect(network, ConnectionOptions(ping_interval_s=30))
    await connection.ready()
    await asyncio.sleep(31)  # the answer to its first ping does not come, nor anything else
    broker.session.write(answers.encode_success(12345))
    heard_s = asyncio.get_running_loop().time()
    await connection.closed()
    assert 30 <= asyncio.get_running_loop().time() - heard_s <= 60


async def test_any_frame_is_a_sign_of_life(network: FakeNetwork, broker: FakeBroker) -> None:
    broker.on(BaseCommand.PING)
    connection = await connect(network, ConnectionOptions(ping_interval_s=30))
    await connection.ready()
    for _ in range(20):
        broker.session.write(answers.encode_success(12345))
        await asyncio.sleep(25)
    assert connection.is_open


async def test_an_error_about_the_connection_itself_ends_it(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    connection = await connect(network)
    await connection.ready()
    broker.session.write(answers.encode_error(NO_REQUEST_ID, api.UnknownError, "go away"))
    await connection.closed()


async def test_answers_and_commands_for_closed_channels_are_ignored(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    connection = await connect(network)
    await connection.ready()
    broker.session.write(
        answers.encode_success(777),
        answers.encode_close_producer(5),
        answers.encode_close_consumer(5),
        answers.encode_send_error(5, 6, api.ChecksumError, "?"),
        answers.encode_active_consumer_change(5, is_active=True),
        answers.encode_reached_end_of_topic(5),
        encode_command(CHALLENGE),
    )
    broker.deliver(0, b"for a closed consumer", consumer_id=5)
    answer = await connection.request(clone(LOOKUP))
    assert answer.type == BaseCommand.LOOKUP_RESPONSE


async def test_an_error_answer_is_raised(network: FakeNetwork, broker: FakeBroker) -> None:
    broker.on(
        BaseCommand.LOOKUP,
        lambda session, command, _: session.write(
            answers.encode_refusal(command, api.MetadataError, "ill") or b""
        ),
    )
    connection = await connect(network)
    await connection.ready()
    with pytest.raises(BrokerFailed, match="ill"):
        await connection.request(clone(LOOKUP))


async def test_an_oversized_frame_ends_the_connection(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    connection = await connect(network)
    await connection.ready()
    broker.session.write(b"\x7f\xff\xff\xff")
    await connection.closed()


@given(st.binary(min_size=1, max_size=60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_garbage_ends_a_connection_or_is_ignored(garbage: bytes, is_framed: bool) -> None:  # noqa: FBT001
    async def feed() -> None:
        connection = Connection(Route(ADDRESS), ConnectionOptions())
        transport = FakeTransport(connection)
        connection.connection_made(transport)
        connection.data_received(answers.encode_connected(21, 1000))
        await connection.ready()
        wire = len(garbage).to_bytes(4, "big") + garbage if is_framed else garbage
        for index in range(len(wire)):
            connection.data_received(wire[index : index + 1])
        transport.close()
        await connection.closed()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(feed())


async def test_a_connection_that_breaks_during_the_hand_shake_says_so(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.drop())
    connection = await connect(network)
    with pytest.raises(ClientError):
        await connection.ready()


async def test_an_error_says_why_the_broker_was_left(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.CONNECT, lambda session, _, __: session.write(b"HTTP/1.1 400 Bad Request\r\n")
    )
    connection = await connect(network)
    with pytest.raises(ConnectionLost, match="to broker:6650 broke: it speaks no Pulsar"):
        await connection.ready()


async def test_a_broker_that_closes_is_said_to_have_closed(
    network: FakeNetwork, broker: FakeBroker
) -> None:
    broker.on(BaseCommand.CONNECT, lambda session, _, __: session.drop())
    connection = await connect(network)
    with pytest.raises(ConnectionLost, match="the broker closed it"):
        await connection.ready()


@pytest.mark.parametrize(("size", "pieces"), [(100, []), (100_000, [50, 100_000, 50, 100_000])])
async def test_large_frames_are_not_copied_to_be_written_together(
    network: FakeNetwork,
    broker: FakeBroker,
    size: int,
    pieces: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def note(_: FakeTransport, frames: list[bytes | memoryview]) -> None:
        seen.extend(map(len, frames))

    monkeypatch.setattr(FakeTransport, "writelines", note)
    connection = await connect(network)
    await connection.ready()
    connection.write(bytes(50), bytes(size))
    connection.write(bytes(50), memoryview(bytes(size)))
    broker.session.write(PING)
    await until(lambda: bool(broker.of_type(BaseCommand.PONG)) or bool(seen))
    assert seen == pieces
