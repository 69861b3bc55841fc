"""Control messages: object and exact bytes, the stream cut anywhere, garbage only refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_runtime.control_codec import (
    CONTROL,
    MESSAGE_BYTES_MAX,
    ControlMessageError,
    Drain,
    Drained,
    Fault,
    HealthAnswer,
    HealthRequest,
    Hello,
    MessageCodec,
    MessageReader,
    Ping,
    Pong,
    Ready,
    SetLogLevel,
    UnknownMessage,
)

MESSAGES: list[object] = [
    Hello("broker", 4711, "0.1.0"),
    Ready({"pulsar": "pulsar://127.0.0.1:6650", "web": "http://127.0.0.1:8080"}),
    Ready({}),
    HealthRequest(1),
    Ping(),
    Pong(),
    HealthAnswer(1, is_healthy=True),
    HealthAnswer(2, is_healthy=False, reason="no bookie answers"),
    Drain(2.5),
    Drained(),
    SetLogLevel("DEBUG"),
    Fault("lose_session", {"after_s": "3"}),
]

TEXT = st.text(max_size=50)
ANY_MESSAGE = st.one_of(
    st.builds(Hello, TEXT, st.integers(0, 2**32), TEXT),
    st.builds(Ready, st.dictionaries(TEXT, TEXT, max_size=5)),
    st.builds(HealthAnswer, st.integers(0, 2**63), st.booleans(), TEXT),
    st.builds(Drain, st.floats(allow_nan=False)),
    st.builds(Drained),
    st.builds(Fault, TEXT, st.dictionaries(TEXT, TEXT, max_size=5)),
)


def read(stream: bytes) -> list[object]:
    return MessageReader(CONTROL).feed(stream)


def packed(content: object) -> bytes:
    return cast("bytes", msgpack.packb(content))


def frame(body: bytes, *, version: int = 1) -> bytes:
    return (len(body) + 1).to_bytes(4, "big") + bytes([version]) + body


def test_the_bytes_are_these() -> None:
    assert CONTROL.encode(HealthRequest(5)) == (
        b"\x00\x00\x00\x1d" + b"\x01" + b"\x92\xadHealthRequest\x81\xaarequest_id\x05"
    )


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_what_is_written_is_read(message: object) -> None:
    assert read(CONTROL.encode(message)) == [message]


def test_a_stream_cut_anywhere_gives_the_same_messages() -> None:
    stream = b"".join(map(CONTROL.encode, MESSAGES))
    for cut in range(len(stream) + 1):
        reader = MessageReader(CONTROL)
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == MESSAGES
        assert not reader.unread
    reader = MessageReader(CONTROL)
    assert [message for byte in stream for message in reader.feed(bytes([byte]))] == MESSAGES


def test_a_message_that_is_not_whole_is_waited_for() -> None:
    reader = MessageReader(CONTROL)
    assert reader.feed(CONTROL.encode(Drained())[:-1]) == []
    assert reader.unread


@given(st.lists(ANY_MESSAGE, max_size=5))
@settings(max_examples=100)
def test_any_messages_come_through(messages: list[object]) -> None:
    assert read(b"".join(map(CONTROL.encode, messages))) == messages


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_garbage_is_refused_with_one_error(garbage: bytes) -> None:
    for stream in (garbage, frame(garbage)):
        with suppress(ControlMessageError):
            read(stream)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([type(message).__name__ for message in MESSAGES] + ["Made", ""]),
    st.dictionaries(
        st.sampled_from(["part", "pid", "version", "addresses", "request_id", "other"]), JSON_LIKE
    ),
)
@settings(max_examples=200)
def test_messages_with_wrong_fields_are_refused_with_one_error(
    kind: str, values: dict[str, object]
) -> None:
    with suppress(ControlMessageError):
        read(frame(packed([kind, values])))


@given(st.sampled_from(MESSAGES), st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=200)
def test_a_flipped_byte_is_refused_with_one_error(message: object, at: int, byte: int) -> None:
    stream = bytearray(CONTROL.encode(message))
    stream[at % len(stream)] = byte
    with suppress(ControlMessageError):
        read(bytes(stream))


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (frame(packed(["Drained", {}]), version=2), "version 2; we speak 1"),
        (b"\x00\x00\x00\x00", "version none"),
        ((MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"), "at most 65536"),
        (frame(b"\xc1"), "not msgpack"),
        (frame(packed({"Drained": {}})), "not \\[kind, fields\\]"),
        (frame(packed(["Hello", {"part": "broker"}])), "Hello lacks a field"),
        (frame(packed(["HealthRequest", {"request_id": True}])), "request_id cannot be"),
        (frame(packed(["Ready", {"addresses": {"a": 1}}])), "addresses cannot be"),
        (frame(b"\x91" * 5000), "not msgpack"),
    ],
)
def test_every_refusal_says_why(stream: bytes, reason: str) -> None:
    with pytest.raises(ControlMessageError, match=reason):
        read(stream)


def test_a_field_a_newer_peer_added_is_ignored() -> None:
    assert read(frame(packed(["SetLogLevel", {"level": "x", "later": 1}]))) == [SetLogLevel("x")]


def test_a_field_an_older_peer_lacks_takes_its_default() -> None:
    assert read(frame(packed(["Fault", {"name": "x"}]))) == [Fault("x", {})]


def test_a_kind_a_newer_peer_made_up_is_named_and_left() -> None:
    assert read(frame(packed(["Invented", {}]))) == [UnknownMessage("Invented")]


def test_a_message_too_long_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="SetLogLevel takes"):
        CONTROL.encode(SetLogLevel("x" * MESSAGE_BYTES_MAX))


@dataclass(frozen=True)
class Blob:
    content: bytes
    weight: float


@dataclass(frozen=True)
class Wrong:
    content: list[int]


def test_another_channel_declares_its_own_messages() -> None:
    codec = MessageCodec([Blob], message_bytes_max=100)
    assert MessageReader(codec).feed(codec.encode(Blob(b"\x00\xff", 2))) == [Blob(b"\x00\xff", 2)]
    with pytest.raises(AssertionError):
        codec.encode(Blob(bytes(100), 1.0))
    with pytest.raises(KeyError):
        codec.encode(Drained())


def test_a_field_of_a_type_that_cannot_travel_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match=r"Wrong\.content"):
        MessageCodec([Wrong])
