"""Proves that entries which brokers show are taken apart into messages."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import pytest
from tests.unit.geminga_cli.admin.recording_service import RecordingService

from geminga_cli.admin.errors import AdminRefused
from geminga_cli.admin.groups.messages import MESSAGE_OPERATIONS, read_messages, show_messages
from geminga_cli.admin.service import Answer
from geminga_protocol.pulsar.api_pb2 import KeyValue, SingleMessageMetadata
from geminga_protocol.pulsar.messages.payload import encode_batch

ONE = Answer({"x-pulsar-message-id": "3:4", "x-pulsar-property": '{"a":"1"}'}, b"hello")
BATCH = Answer(
    {"x-pulsar-message-id": "3:5", "x-pulsar-num-batch-message": "2"},
    encode_batch(
        [
            (SingleMessageMetadata(partition_key="k", payload_size=1), b"x"),
            (
                SingleMessageMetadata(properties=[KeyValue(key="a", value="1")], payload_size=2),
                b"\xff\x00",
            ),
        ]
    ),
)
PEEK = MESSAGE_OPERATIONS[0]


def test_an_entry_of_one_message() -> None:
    assert read_messages(ONE) == [{"messageId": "3:4", "properties": {"a": "1"}, "data": "hello"}]


def test_an_entry_of_a_batch() -> None:
    assert read_messages(BATCH) == [
        {"messageId": "3:5:0", "key": "k", "properties": {}, "data": "x"},
        {"messageId": "3:5:1", "properties": {"a": "1"}, "dataBase64": "/wA="},
    ]


def test_text_is_shown_as_it_is_and_what_is_none_in_hexadecimal() -> None:
    lines = list(show_messages(read_messages(BATCH)))
    assert lines[0] == "messageId: 3:5:0  key: k"
    assert lines[1] == "x"
    assert "  a = 1" in lines
    assert any("ff 00" in line for line in lines)


def test_no_key_or_property_moves_the_cursor_of_a_terminal() -> None:
    headers = {"x-pulsar-partition-key": "\x1b[2J", "x-pulsar-property": '{"\\r": "\x9b1A\\n"}'}
    lines = list(show_messages(read_messages(Answer(headers, b"x"))))
    assert lines == ["key: \\x1b[2J", "  \\r = \\x9b1A\\n", "x"]


def peeked(count: int, answers: Mapping[str, object]) -> list[object]:
    given = argparse.Namespace(topic="t", subscription="s", count=count)
    found: list[object] = PEEK.does(RecordingService(answers), given)
    return found


def test_peeking_ends_with_the_backlog() -> None:
    answers = {
        "t/subscription/s/position/1": ONE,
        "t/subscription/s/position/2": BATCH,
        "t/subscription/s/position/3": AdminRefused(404, "no more"),
    }
    assert len(peeked(9, answers)) == 3
    assert len(peeked(2, answers)) == 2


def test_where_there_is_nothing_to_peek_at_it_is_said() -> None:
    with pytest.raises(AdminRefused, match="no more"):
        peeked(1, {"t/subscription/s/position/1": AdminRefused(404, "no more")})
