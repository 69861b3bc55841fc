"""A SEND that lies, on the wire: its sender is told, and consumers of others count what is true."""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import RawClient, Refused
from tests.integration.rest import rest
from tests.integration.waiting import eventually

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_broker_entry,
    encode_payload,
)

TOPIC = "persistent://public/default/lies-{}"
PERMITS = 50
RECEIVE_TIMEOUT_MS = 60_000
BATCHED = 20
BATCH = encode_batch([(api.SingleMessageMetadata(), b"x")] * BATCHED)
TYPES = [
    api.CommandSubscribe.Exclusive,
    api.CommandSubscribe.Failover,
    api.CommandSubscribe.Shared,
    api.CommandSubscribe.Key_Shared,
]


def payload_of(**fields: Any) -> bytes:
    metadata = api.MessageMetadata(producer_name="liar", sequence_id=0, publish_time=1, **fields)
    return encode_payload(metadata, BATCH)


def frame(payload: bytes, num_messages: int) -> bytes:
    """A SEND as no client would write it."""
    send = api.CommandSend(producer_id=1, sequence_id=0, num_messages=num_messages)
    command = api.BaseCommand(type=api.BaseCommand.SEND, send=send).SerializeToString()
    sizes = (4 + len(command) + len(payload)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
    return sizes + command + payload


@pytest.fixture
def liar(
    standalone: StandaloneProcess, request: pytest.FixtureRequest
) -> Generator[tuple[RawClient, str]]:
    """A producer, and its topic."""
    topic = TOPIC.format(zlib.crc32(request.node.name.encode()))
    with RawClient(standalone.service_url) as raw:
        raw.connect()
        raw.create_producer(topic, 1)
        yield raw, topic


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("claimed", [-1, 0, 1, 1000, 2**31 - 1])
def test_consumers_are_charged_for_what_they_get(
    standalone: StandaloneProcess,
    liar: tuple[RawClient, str],
    kind: api.CommandSubscribe.SubType.ValueType,
    claimed: int,
) -> None:
    raw, topic = liar
    with RawClient(standalone.service_url) as other:
        other.connect()
        other.subscribe(topic, "s", 1, kind)
        other.flow(1, PERMITS)
        for payload in (payload_of(), payload_of(num_messages_in_batch=BATCHED)):
            raw.write(frame(payload, claimed))
            raw.expect(api.BaseCommand.SEND_RECEIPT)
            other.expect(api.BaseCommand.MESSAGE)
        stats = rest(
            standalone.web_service_url, "GET", f"/admin/v2/{topic.replace('://', '/')}/stats"
        )[1]
        (consumer,) = stats["subscriptions"]["s"]["consumers"]
        assert consumer["availablePermits"] == PERMITS - 1 - BATCHED
        assert stats["msgInCounter"] == consumer["msgOutCounter"] == 1 + BATCHED


BAD = {
    "nothing": b"",
    "garbage": b"\x00\x00\x00\x05garbage",
    "no such batch": payload_of(num_messages_in_batch=2**31 - 1),
    "empty batch": payload_of(num_messages_in_batch=0),
    "a broker's": encode_broker_entry(api.BrokerEntryMetadata(index=1 << 62)) + payload_of(),
}


@pytest.mark.parametrize("payload", BAD.values(), ids=BAD)
def test_what_no_consumer_could_use_is_refused_and_the_producer_goes_on(
    liar: tuple[RawClient, str], payload: bytes
) -> None:
    raw, _ = liar
    raw.write(frame(payload, 1))
    with pytest.raises(Refused, match="MetadataError"):
        raw.expect(api.BaseCommand.SEND_RECEIPT)
    raw.publish(1, 1, b"good")


@pytest.mark.parametrize("marker_type", [1, 10, 20, 22])
def test_the_official_client_never_meets_markers(
    standalone: StandaloneProcess, liar: tuple[RawClient, str], marker_type: int
) -> None:
    raw, topic = liar
    with client_of(standalone.service_url) as client:
        consumer = client.subscribe(topic, "s")
        for _ in range(3):
            raw.write(frame(payload_of(marker_type=marker_type), 1))
            raw.expect(api.BaseCommand.SEND_RECEIPT)
        raw.publish(1, 1, b"good")
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        assert message.data() == b"good"
        consumer.acknowledge(message)
        path = f"/admin/v2/{topic.replace('://', '/')}/stats"
        eventually(
            lambda: rest(standalone.web_service_url, "GET", path)[1]["subscriptions"]["s"],
            lambda subscription: subscription["msgBacklog"] == 0,
        )
