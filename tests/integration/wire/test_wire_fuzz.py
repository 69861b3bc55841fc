"""Whatever a client sends, the broker answers or closes that connection; it never hangs or falls.

Against a real process. After each case another client, which was there all the time, publishes
and receives as if nothing had happened, and the log must not tell of anything unforeseen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import (
    Answer,
    ConnectionClosed,
    RawClient,
    Refused,
    connect_frame,
    send_frame,
)
from tests.integration.wire.any_command import TOPIC, any_command, fullest, plainest

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.commands import PART_NAMES, PING, encode_command
from geminga_protocol.pulsar.messages.integers import encode_varint

BYSTANDER_TOPIC = "persistent://public/default/bystander"
RECEIVE_TIMEOUT_MS = 60_000
MAX_FRAME_BYTES = 5 * 1024 * 1024 + 10 * 1024
ANSWERS = ("Response", "success", "Success", "error")
UNFORESEEN = ("Traceback", "internal error", "request failed")
# Not shrunk: a case that hangs takes its time at every try, and none of them is large.
FUZZ = settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class Bystander:
    """A client with a producer and a consumer that wants nothing but to be left in peace."""

    def __init__(self, client: Any) -> None:
        self._consumer = client.subscribe(BYSTANDER_TOPIC, "bystander")
        self._producer = client.create_producer(BYSTANDER_TOPIC, batching_enabled=False)
        self._number = 0

    def check(self) -> None:
        """Publish, receive, acknowledge. Raises what the client raises if it was disturbed."""
        self._number += 1
        body = str(self._number).encode()
        self._producer.send(body)
        message = self._consumer.receive(RECEIVE_TIMEOUT_MS)
        assert (message.data(), message.redelivery_count()) == (body, 0)
        self._consumer.acknowledge(message)


@pytest.fixture(scope="module")
def bystander(standalone: StandaloneProcess) -> Generator[Bystander]:
    """One bystander for all cases, connected before the first."""
    with client_of(standalone.service_url) as client:
        yield Bystander(client)


@pytest.fixture(scope="module", autouse=True)
def calm_log(standalone: StandaloneProcess) -> Generator[None]:
    """The log written meanwhile tells of nothing that was not foreseen."""
    log = Path(f"{standalone.data_directory}.log")
    begin = log.stat().st_size
    yield
    with log.open("rb") as file:
        file.seek(begin)
        written = file.read().decode()
    assert [line for line in written.splitlines() if any(word in line for word in UNFORESEEN)] == []


def connected(cluster: StandaloneProcess) -> RawClient:
    """A raw client whose CONNECT was answered."""
    raw = RawClient(cluster.service_url)
    raw.connect()
    return raw


def answers_until_pong(raw: RawClient) -> list[Answer] | None:
    """What comes before the answer to a PING; None if the broker closed the connection instead.

    A broker that does neither makes this raise ``TimeoutError``.
    """
    answers: list[Answer] = []
    try:
        raw.write(PING)
        while (answer := raw.receive()).command.type != api.BaseCommand.PONG:
            answers.append(answer)
    except ConnectionClosed:
        return None
    return answers


def wait_until_closed(raw: RawClient) -> None:
    """Read until the end of the stream. Raises ``TimeoutError`` if it does not come."""
    try:
        while True:
            raw.receive()
    except ConnectionClosed:
        return


def part_of(command: api.BaseCommand) -> Any:
    """The message inside the command."""
    part: Message = getattr(command, PART_NAMES[command.type])
    return part


# Every command


def with_producer_and_consumer(cluster: StandaloneProcess) -> RawClient:
    """A connected client that has one of each, both with the id 1."""
    raw = connected(cluster)
    raw.create_producer(TOPIC, 1)
    raw.subscribe(TOPIC, "fuzz", 1, api.CommandSubscribe.Shared)
    return raw


@pytest.mark.parametrize("has_clients", [False, True], ids=["alone", "busy"])
@pytest.mark.parametrize("build", [plainest, fullest])
@pytest.mark.parametrize("kind", sorted(PART_NAMES), ids=lambda kind: PART_NAMES[kind])
def test_every_command_is_answered_refused_or_ends_its_own_connection(
    standalone: StandaloneProcess,
    bystander: Bystander,
    kind: int,
    build: Callable[[int], api.BaseCommand],
    *,
    has_clients: bool,
) -> None:
    command, name = build(kind), PART_NAMES[kind]
    begin = with_producer_and_consumer if has_clients else connected
    with begin(standalone) as raw:
        raw.send(command)
        answers = answers_until_pong(raw)
        is_request = "request_id" in part_of(command).DESCRIPTOR.fields_by_name
        if is_request and part_of(command).HasField("request_id") and not name.endswith(ANSWERS):
            assert answers is not None, f"{name} is a request: it is owed an answer"
            while not any(_request_id(answer) == part_of(command).request_id for answer in answers):
                answers.append(raw.receive())
    bystander.check()


def _request_id(answer: Answer) -> int | None:
    return getattr(part_of(answer.command), "request_id", None)


@FUZZ
@given(commands=st.lists(any_command(), min_size=1, max_size=4))
def test_any_commands_are_answered_or_end_their_connection(
    standalone: StandaloneProcess, bystander: Bystander, commands: list[api.BaseCommand]
) -> None:
    """They meet a producer and a consumer of theirs: small ids are frequent among them."""
    with with_producer_and_consumer(standalone) as raw:
        raw.write(send_frame(1, 0, b"hello") + b"".join(map(encode_command, commands)))
        for answer in answers_until_pong(raw) or []:
            assert "internal error" not in str(answer.command)
    bystander.check()


def test_before_connect_nothing_else_is_served(
    standalone: StandaloneProcess, bystander: Bystander
) -> None:
    with RawClient(standalone.service_url) as raw:
        raw.write(encode_command(plainest(api.BaseCommand.LOOKUP)))
        wait_until_closed(raw)
    bystander.check()


UNKNOWN_TYPES = [number for number in range(1, 300) if number not in PART_NAMES]


@pytest.mark.parametrize("kind", [UNKNOWN_TYPES[0], UNKNOWN_TYPES[-1], 1 << 28])
@pytest.mark.parametrize("has_part", [False, True], ids=["bare", "whole"])
def test_a_command_of_an_unknown_type_is_refused_and_ends_no_connection(
    standalone: StandaloneProcess, bystander: Bystander, kind: int, *, has_part: bool
) -> None:
    part = encode_varint(kind << 3 | 2) + b"\x00" if has_part else b""
    command = b"\x08" + encode_varint(kind) + part
    sizes = (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
    with with_producer_and_consumer(standalone) as raw:
        raw.write(sizes + command)
        answers = answers_until_pong(raw)
        assert answers is not None
        (error,) = [each.command.error for each in answers if each.command.HasField("error")]
        assert error.error == api.UnsupportedVersionError
        raw.publish(1, 0, b"hello")
    bystander.check()


# What ends a producer or a consumer comes after all that needs one.
LAST = (
    api.BaseCommand.SEEK,
    api.BaseCommand.UNSUBSCRIBE,
    api.BaseCommand.CLOSE_CONSUMER,
    api.BaseCommand.CLOSE_PRODUCER,
)


@pytest.mark.parametrize("build", [plainest, fullest])
def test_one_connection_says_everything_there_is_and_lives(
    standalone: StandaloneProcess, bystander: Bystander, build: Callable[[int], api.BaseCommand]
) -> None:
    others = [kind for kind in sorted(PART_NAMES) if kind not in LAST]
    with with_producer_and_consumer(standalone) as raw:
        for kind in (*others, *LAST):
            if kind == api.BaseCommand.CONNECT:
                continue  # the first command of a connection, and only that
            raw.send(build(kind))
            assert answers_until_pong(raw) is not None, PART_NAMES[kind]
    bystander.check()


# Frames that are none


@FUZZ
@given(garbage=st.binary(min_size=1, max_size=300), is_connected=st.booleans())
def test_garbage_ends_its_connection_and_no_other(
    standalone: StandaloneProcess, bystander: Bystander, garbage: bytes, *, is_connected: bool
) -> None:
    with connected(standalone) if is_connected else RawClient(standalone.service_url) as raw:
        raw.write(garbage)
        raw.end_of_writing()
        wait_until_closed(raw)
    bystander.check()


@pytest.mark.parametrize("frame_bytes", [MAX_FRAME_BYTES + 1, 1 << 31, (1 << 32) - 1])
def test_an_oversized_frame_closes_the_connection_at_its_size(
    standalone: StandaloneProcess, bystander: Bystander, frame_bytes: int
) -> None:
    """No byte of the frame itself is needed, let alone held."""
    with connected(standalone) as raw:
        raw.write(frame_bytes.to_bytes(4, "big"))
        wait_until_closed(raw)
    bystander.check()


def test_a_message_of_the_largest_size_is_taken(standalone: StandaloneProcess) -> None:
    body = bytes(5 * 1024 * 1024 - 100)
    with connected(standalone) as raw:
        raw.create_producer(f"{TOPIC}-large", 1)
        raw.publish(1, 0, body)


def test_a_bad_checksum_is_told_and_the_producer_goes_on(
    standalone: StandaloneProcess, bystander: Bystander
) -> None:
    with connected(standalone) as raw:
        raw.create_producer(TOPIC, 1)
        good = send_frame(1, 0, b"hello")
        raw.write(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(Refused, match="ChecksumError"):
            raw.expect(api.BaseCommand.SEND_RECEIPT)
        raw.publish(1, 0, b"hello")
    bystander.check()


# Frames in pieces


def script(topic: str) -> bytes:
    """The beginning of a client's life as one run of bytes; the topic is owned already."""
    subscribe = api.CommandSubscribe(
        topic=topic,
        subscription="script",
        subType=api.CommandSubscribe.Shared,
        consumer_id=1,
        request_id=3,
    )
    commands = (
        api.BaseCommand(
            type=api.BaseCommand.PARTITIONED_METADATA,
            partitionMetadata=api.CommandPartitionedTopicMetadata(topic=topic, request_id=1),
        ),
        api.BaseCommand(
            type=api.BaseCommand.PRODUCER,
            producer=api.CommandProducer(topic=topic, producer_id=1, request_id=2),
        ),
        api.BaseCommand(type=api.BaseCommand.SUBSCRIBE, subscribe=subscribe),
    )
    return connect_frame() + b"".join(map(encode_command, commands))


SCRIPT_TOPIC = f"{TOPIC}-script"
SCRIPT = script(SCRIPT_TOPIC)


@pytest.fixture(scope="module")
def scripted(standalone: StandaloneProcess) -> StandaloneProcess:
    """The cluster, after a client has looked the script's topic up."""
    with connected(standalone) as raw:
        raw.lookup(SCRIPT_TOPIC)
    return standalone


def check_script_is_served(raw: RawClient) -> None:
    """Each request of the script is answered, whatever the order."""
    wanted = {
        api.BaseCommand.CONNECTED,
        api.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        api.BaseCommand.PRODUCER_SUCCESS,
        api.BaseCommand.SUCCESS,
    }
    while wanted:
        kind = raw.receive().command.type
        assert kind != api.BaseCommand.ERROR
        wanted.discard(kind)
    raw.flow(1, 10)
    raw.write(send_frame(1, 0, b"hello"))
    wanted = {api.BaseCommand.SEND_RECEIPT, api.BaseCommand.MESSAGE}
    while wanted:
        wanted.discard(raw.receive().command.type)


def test_a_client_cut_off_at_any_byte_disturbs_no_other(
    scripted: StandaloneProcess, bystander: Bystander
) -> None:
    """Half of them say that they end, the other half are just gone."""
    for cut in range(len(SCRIPT)):
        with RawClient(scripted.service_url) as raw:
            raw.write(SCRIPT[:cut])
            if cut % 2:
                raw.end_of_writing()
                wait_until_closed(raw)
    bystander.check()


def test_a_script_that_comes_byte_by_byte_is_served(scripted: StandaloneProcess) -> None:
    with RawClient(scripted.service_url) as raw:
        for byte in SCRIPT:
            raw.write(bytes([byte]))
        check_script_is_served(raw)


@FUZZ
@given(cuts=st.sets(st.integers(1, len(SCRIPT) - 1), max_size=5))
def test_a_script_in_pieces_is_served(scripted: StandaloneProcess, cuts: set[int]) -> None:
    borders = [0, *sorted(cuts), len(SCRIPT)]
    with RawClient(scripted.service_url) as raw:
        for begin, end in pairwise(borders):
            raw.write(SCRIPT[begin:end])
        check_script_is_served(raw)


@FUZZ
@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(SCRIPT) - 1), st.integers(1, 255)), min_size=1, max_size=3
    )
)
def test_a_script_with_flipped_bits_ends_its_own_connection_at_worst(
    scripted: StandaloneProcess, bystander: Bystander, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(SCRIPT)
    for position, mask in flips:
        damaged[position] ^= mask
    with RawClient(scripted.service_url) as raw:
        raw.write(bytes(damaged))
        raw.end_of_writing()
        wait_until_closed(raw)
    bystander.check()
