"""Proves what users may choose of a producer and say of a message, and how mistakes are told."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.unit.geminga.fake_broker import FakeBroker
from tests.unit.geminga.producers.stored import entries, metadata_of

from geminga import (
    AccessMode,
    Batching,
    Client,
    KeyValueSchema,
    MessageOptions,
    ProducerOptions,
    SchemaInfo,
    StringSchema,
)
from geminga.producers.options import ProducerSettings, attributes_of
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.enums import SchemaType

# What settings have besides, and why.
NO_OPTIONS = {
    "pending_bytes_max": "bounded for all producers of a client",
    "schema": "made of the producer's schema",
    "is_encrypted": "follows from other options",
}
NOW_MS = 1_000_000


def test_every_option_has_a_default_and_is_explained() -> None:
    options = set(ProducerOptions.__annotations__)
    assert options == {each.name for each in fields(ProducerSettings)} - NO_OPTIONS.keys()
    assert all(f"``{option}``" in (ProducerOptions.__doc__ or "") for option in options)
    assert all(
        f"``{option}``" in (MessageOptions.__doc__ or "")
        for option in MessageOptions.__annotations__
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"access_mode": "alone"}, "'alone' is no access mode: shared, exclusive, "),
        ({"compression": "gzip"}, "'gzip' is no compression"),
        ({"pending_messages_max": 0}, "at least 1"),
        ({"send_timeout_s": 0}, "more than 0"),
        ({"partitions_refresh_s": 0}, "more than 0"),
        ({"batching": False}, "batching must be a Batching or None, not False"),
    ],
)
async def test_what_cannot_be_is_refused_at_once(
    client: Client, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=reason):
        client.producer("orders", **options)


async def test_misspelled_options_are_refused(client: Client) -> None:
    wrong: dict[str, Any] = {"kye": "k"}
    with pytest.raises(TypeError, match="kye"):
        client.producer("orders", **wrong)
    producer = await client.producer("orders")
    with pytest.raises(TypeError, match="kye"):
        producer.send_nowait(b"", **wrong)
    with pytest.raises(TypeError, match="kye"):
        await producer.send(b"", **wrong)


def test_batches_of_nothing_are_refused() -> None:
    for wrong in ({"messages_max": 0}, {"bytes_max": 0}, {"delay_s": -1}):
        with pytest.raises(ValueError, match="of batches"):
            Batching(**wrong)  # type: ignore[arg-type]  # numbers of either kind


async def test_the_broker_is_told_what_a_producer_is_like(
    client: Client, broker: FakeBroker
) -> None:
    await client.producer(
        "orders", access_mode="exclusive_with_fencing", initial_subscription="kept"
    )
    await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
    first, second = (command.producer for command in broker.of_type(BaseCommand.PRODUCER))
    assert first.producer_access_mode == api.ExclusiveWithFencing
    assert first.initial_subscription_name == "kept"
    assert not first.HasField("schema")
    assert second.producer_access_mode == api.Exclusive
    assert not second.HasField("initial_subscription_name")


async def test_one_that_waits_to_be_the_exclusive_producer_is_open_when_it_is(
    client: Client, broker: FakeBroker
) -> None:
    def make_wait(session: Any, command: BaseCommand, _: bytes) -> None:
        request_id = command.producer.request_id
        session.write(answers.encode_producer_success(request_id, "p", is_ready=False))
        session.write(answers.encode_producer_success(request_id, "p"))

    broker.on(BaseCommand.PRODUCER, make_wait)
    async with client.producer("orders", access_mode="wait_for_exclusive") as producer:
        await producer.send(b"mine")


class Text:
    """A schema of a test."""

    schema_info = SchemaInfo(SchemaType.STRING, "text", b"defined", {"p": "q"})

    def encode(self, value: str, /) -> bytes:
        return value.encode()

    def decode(self, payload: bytes, /) -> str:
        return payload.decode()


async def test_a_schema_is_registered_and_messages_name_its_version(
    client: Client, broker: FakeBroker
) -> None:
    broker.on(
        BaseCommand.PRODUCER,
        lambda session, command, _: session.write(
            answers.encode_producer_success(
                command.producer.request_id, "p", schema_version=b"\0\0\0\1"
            )
        ),
    )
    producer = await client.producer("orders", schema=Text())
    await producer.send("caf\xe9")
    producer.send_nowait("a")
    producer.send_nowait("b")
    await producer.flush()
    asked = broker.of_type(BaseCommand.PRODUCER)[0].producer.schema
    assert (asked.name, asked.type, asked.schema_data) == ("text", api.Schema.String, b"defined")
    assert [(pair.key, pair.value) for pair in asked.properties] == [("p", "q")]
    assert broker.stored_bodies == ["caf\xe9".encode(), b"a", b"b"]
    assert [each.schema_version for each in metadata_of(broker)] == [b"\0\0\0\1"] * 2


async def test_the_key_of_a_separated_pair_is_the_messages_key(
    client: Client, broker: FakeBroker
) -> None:
    text = StringSchema()
    producer = await client.producer("orders", schema=KeyValueSchema(text, text, "SEPARATED"))
    pairs: list[tuple[str | None, str | None]] = [("k", "v"), ("k", None), (None, "v")]
    for pair in pairs:
        producer.send_nowait(pair)
    await producer.flush()
    await producer.send((None, "v"))
    with pytest.raises(ValueError, match="it has no other"):
        producer.send_nowait(("k", "v"), key="other")
    found = [message for messages in entries(broker) for message in messages]
    assert [message.body for message in found] == [b"v", b"", b"v", b"v"]
    said = [message.said for message in found]
    assert [each.partition_key for each in said] == ["aw==", "aw==", "", ""]
    assert [each.partition_key_b64_encoded for each in said] == [True, True, False, False]
    assert [each.null_value for each in said] == [False, True, False, False]
    assert [each.null_partition_key for each in said] == [False, False, True, True]


# ---- messages


def test_times_are_told_in_several_ways() -> None:
    moment = datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    for given in (1_577_836_800_000, moment, moment.astimezone(UTC).astimezone()):
        attributes, _ = attributes_of(NOW_MS, event_time=given, deliver_at=given)
        assert attributes is not None
        assert attributes.event_time_ms == attributes.deliver_at_ms == 1_577_836_800_000
    for after in (1.5, timedelta(seconds=1.5)):
        attributes, _ = attributes_of(NOW_MS, deliver_after=after)
        assert attributes is not None
        assert attributes.deliver_at_ms == NOW_MS + 1500
    with pytest.raises(ValueError, match="either deliver_at or deliver_after"):
        attributes_of(NOW_MS, deliver_at=1, deliver_after=1)


def test_a_message_of_which_nothing_is_said_has_no_attributes() -> None:
    assert attributes_of(NOW_MS) == (None, None)
    assert attributes_of(NOW_MS, key=None, sequence_id=4) == (None, 4)
