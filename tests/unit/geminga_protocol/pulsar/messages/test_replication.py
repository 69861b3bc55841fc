"""Proves what a replicated entry tells of itself, in the words of upstream."""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload, open_payload
from geminga_protocol.pulsar.messages.replication import (
    SOURCE_POSITION_PROPERTY,
    is_replicator,
    remote_of_cursor,
    replicated_front,
    replicator_cursor,
    replicator_producer,
    source_position,
    stored_metadata,
)

BODY = b"\x00body"


def metadata(**fields: object) -> api.MessageMetadata:
    return api.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]


def test_names_are_upstreams() -> None:
    assert replicator_cursor("west") == "pulsar.repl.west"
    assert replicator_producer("east", "west") == "pulsar.repl.east-->west"
    assert is_replicator("pulsar.repl.east-->west")
    assert not is_replicator("p")


@pytest.mark.parametrize(
    ("cursor", "remote"),
    [("pulsar.repl.west", "west"), ("pulsar.repl.", None), ("pulsar.dedup", None), ("west", None)],
)
def test_a_cursor_says_for_which_cluster_it_is(cursor: str, remote: str | None) -> None:
    assert remote_of_cursor(cursor) == remote


def test_an_entry_is_sent_with_its_origin_and_its_position_and_is_otherwise_as_stored() -> None:
    stored = encode_payload(
        metadata(
            partition_key="k",
            num_messages_in_batch=3,
            txnid_least_bits=1,
            txnid_most_bits=2,
            schema_version=b"\0",
            properties=[api.KeyValue(key="a", value="b")],
        ),
        BODY,
    )
    said, body_start = stored_metadata(stored)
    body = memoryview(stored)[body_start:]
    sent = replicated_front(said, body, source="east", position=(3, 9), schema_version=b"\1") + body
    opened, start = open_payload(sent, 0, len(sent))
    assert sent[start:] == BODY
    assert opened == metadata(
        partition_key="k",
        num_messages_in_batch=3,
        schema_version=b"\1",
        replicated_from="east",
        properties=[
            api.KeyValue(key="a", value="b"),
            api.KeyValue(key=SOURCE_POSITION_PROPERTY, value="3:9"),
        ],
    )
    assert source_position(opened) == (3, 9)


def test_what_a_client_calls_its_position_is_not_taken_for_one() -> None:
    forged = metadata(
        properties=[
            api.KeyValue(key=SOURCE_POSITION_PROPERTY, value="99:99"),
            api.KeyValue(key="a", value="b"),
        ]
    )
    sent = replicated_front(forged, memoryview(BODY), source="east", position=(3, 9)) + BODY
    assert source_position(open_payload(sent, 0, len(sent))[0]) == (3, 9)


@pytest.mark.parametrize(
    "value", ["", "3", "3:", ":9", "3:9:1", "-3:9", "x:y", "٣:9", "9" * 20 + ":1"]
)
def test_what_is_no_position_is_none(value: str) -> None:
    said = metadata(properties=[api.KeyValue(key=SOURCE_POSITION_PROPERTY, value=value)])
    assert source_position(said) is None
    assert source_position(metadata()) is None
